"""The frames of `podgpu top`, without a terminal."""

from datetime import timedelta

import msgspec
import pytest

from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.terminal_text import width
from podgpu.cli.top.columns import heading, room
from podgpu.cli.top.ui_state import State, Tab
from podgpu.cli.top.view import DaemonStatus, Style, frame
from tests.pipeline.status_page.scenes import (
    SCENES,
    report_claims,
    started_node,
    status,
    status_input,
)
from tests.podgpu.cli.top.views import frame_of, lines, state_after
from tests.support.nodes import gpu, kubelet_claim

# The whole frame.


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (20, 5), (1, 1), (5, 3)])
@pytest.mark.parametrize("keys", ["", "f", "a", "s", "?", "u", "/x"])
def test_every_line_is_as_wide_as_the_terminal(name: str, size: tuple[int, int], keys: str) -> None:
    shown = frame_of(name, state_after(*keys), *size)
    assert len(shown.lines) == size[1]
    for line, _ in shown.lines:
        assert width(line) == size[0]
        assert line.isprintable()


def test_eight_gpus_with_seven_instances_each_at_80_by_24() -> None:
    shown = [line for line, _ in frame_of("mig").lines]
    assert shown[0].startswith("node-1: 8 GPUs: 8 up; 56 MIG instances ")
    assert shown[0].endswith(" 08:10:00 UTC")
    assert shown[1].strip() == ""
    assert shown[2].split() == ["GPU", "USE", "MEMORY", "GIB", "POWER", "W", "TEMP", "HELD", "BY",
                                "FOR"]  # fmt: skip
    assert shown[3].split() == ["0", "[", "]", "-", "8.0/80.0", "133/700", "34", "5", "of", "7",
                                "instances", "held"]  # fmt: skip
    assert shown[4].split() == ["1g.10gb", "7/0", "[", "]", "0%", "0.0/10.0", "free"]
    assert shown[5].split()[:5] == ["1g.10gb", "8/0", "[|", "]", "13%"]
    assert shown[5].split()[-2:] == ["ml/noteboo~-7c9d5f6b4", "10m+"]
    assert shown[-1].rstrip() == "? help   q quit   lines 1 to 20 of 64"
    assert [style for _, style in frame_of("mig").lines][:4] == [
        Style.REVERSE,
        Style.BOLD,
        Style.BOLD,
        Style.PLAIN,
    ]


def test_a_wide_terminal_shows_more_columns() -> None:
    [_, _, second, *_] = lines("mig", columns=160)
    assert "ml/notebook-0-1-7c9d5f6b4 (jupyter)" in second
    assert second.endswith("kubelet: kubelet_ids")
    assert "1 replica" in "\n".join(lines("troubled", columns=120))


def test_a_narrow_terminal_still_shows_the_holders() -> None:
    [first, _] = lines("two-gpus", columns=44)
    assert first.split() == ["0", "[|||||]", "93%", "ml/train-0", "10m+"]


def test_states_and_holders_are_shown() -> None:
    assert [" ".join(line.split()) for line in lines("troubled")] == [
        "0 LOST [ ] - - - - not held",
        "1 UNKNOWN [ ] - - - - ml/new (main) 10m+",
        "ml/old (main) 10m+",
        "! 2 in conflict",
        "2 [ ] - 32.0/80.0 322/700 46 ml/serve-0 (main) 10m+",
        "ml/serve-1 (main) 10m+",
        "ml/serve-2 (main) 10m+",
        "3 [ ] - - - - ml/half (main) 6m+",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no-driver", "No source has reported GPUs yet."),
        ("nothing-yet", "No source has reported GPUs yet."),
    ],
)
def test_a_text_is_shown_while_no_gpus_are_known(name: str, expected: str) -> None:
    assert lines(name) == [expected]


def test_a_text_is_shown_for_a_node_without_gpus() -> None:
    node = started_node()
    node.has()
    assert lines(status_of(status_input(node))) == ["This node has no GPU."]


def test_unknown_values_are_dashes() -> None:
    [line] = lines("no-holders")
    assert line.split() == ["0", "UNKNOWN", "[", "]", "-", "-", "-", "-", "unknown"]


@pytest.mark.parametrize(
    ("seconds", "seen_since", "known"),
    [
        (59, "59s+", "59s"),
        (7200, "2h+", "2h"),
        (98 * 86_400, "98d+", "98d"),
        (400 * 86_400, "99d+", "400d"),
    ],
)
def test_the_duration_of_a_holding(seconds: int, seen_since: str, known: str) -> None:
    document = status("two-gpus")
    assert document.gpus is not None
    card, other = document.gpus
    assert card.holders is not None
    for since_known, expected in ((False, seen_since), (True, known)):
        holder = msgspec.structs.replace(
            card.holders[0],
            since=document.time - timedelta(seconds=seconds),
            since_known=since_known,
        )
        held = msgspec.structs.replace(card, holders=(holder,))
        assert lines(msgspec.structs.replace(document, gpus=(held, other)))[0].endswith(
            f" {expected}"
        )


# The second line.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two-gpus", ""),
        (
            "troubled",
            "! (and 5 more) GPU 0 is lost: it was present before and no longer responds",
        ),
        ("no-driver", "! (and 1 more) no source has reported GPUs (down: gpus)"),
        ("nothing-yet", "not ready: waiting for the first report of: gpus, kubelet"),
    ],
)
def test_the_first_problem_is_in_the_second_line(name: str, expected: str) -> None:
    assert frame_of(name).lines[1][0].rstrip() == expected


def test_a_missing_response_takes_precedence_in_the_second_line() -> None:
    feed = DaemonStatus(status("troubled"), 125.0, "connection refused")
    line, _ = frame(feed, State(), 80, 24).lines[1]
    assert line.rstrip() == "! no response for 2 min: connection refused"


# Sources and sinks.


def test_sources_and_sinks_are_shown_with_their_errors() -> None:
    shown = "\n".join(
        line.rstrip() for line, _ in frame_of("troubled", State(tab=Tab.COMPONENTS)).lines
    )
    for expected in (
        "kubelet            podresources  down      10 min ago 10 min ago",
        "    error 20 s ago: /run/x.sock: connection refused; is the kubelet running?",
        "podlist            podlist       up        6 min ago  6 min ago",
        "    error 8 min ago, resolved: the file is not there",
        "push               otlp          stuck     12 345     7",
        "metrics            prometheus    -         -          -",
    ):
        assert expected in shown


def test_a_long_error_is_shown_in_full() -> None:
    text = "the end of this text says how to fix the error " * 6
    source = status("troubled").sources[1]
    assert source.error is not None
    error = msgspec.structs.replace(source.error, text=text)
    component = msgspec.structs.replace(source, error=error)
    document = msgspec.structs.replace(status("troubled"), sources=(component,))
    shown = [line for line, _ in frame_of(document, State(tab=Tab.COMPONENTS)).lines]
    joined = "".join(line[4:] for line in shown if line.startswith("    "))
    assert text.strip() in joined


# Names.


def held_by(*names: str, container: str = "main") -> StatusDocument:
    """Return a document with one GPU for each of these pods."""
    node = started_node()
    cards = [gpu(n) for n in range(len(names))]
    node.has(*cards)
    pairs = zip(names, cards, strict=True)
    report_claims(
        node, *(kubelet_claim(name, card.uuid, container=container) for name, card in pairs)
    )
    return status_of(status_input(node))


LONG = "llama-70b-pretraining-worker"


@pytest.mark.parametrize(
    ("pod", "container", "expected"),
    [
        ("train-0", "main", "ml/train-0 (main)"),
        ("train-0", "a-long-sidecar", "ml/train-0 (a-long-s~"),
        (f"{LONG}-0", "main", "ml/lla~orker-0 (main)"),
        (f"{LONG}-0", "trainer", "ml/llama-7~g-worker-0"),
        ("x" * 17, "main", f"ml/{'x' * 17}~"),
        ("x" * 18, "main", f"ml/{'x' * 18}"),
    ],
)
def test_a_name_that_is_too_long_is_shortened(pod: str, container: str, expected: str) -> None:
    [line] = lines(held_by(pod, container=container))
    assert line[-26:-5].rstrip() == expected


@pytest.mark.parametrize("columns", [64, 72, 80, 100, 110, 130, 140])
@pytest.mark.parametrize("container", ["main", "c" * 63])
@pytest.mark.parametrize(
    "names",
    [
        [f"{LONG}-0", f"{LONG}-1"],
        [f"{LONG}-7c9d5f6b4-x7k2p", f"{LONG}-7c9d5f6b4-m4q9z"],
        [f"a-{LONG}", f"b-{LONG}"],
        [f"{'p' * 252}1", f"{'p' * 252}2"],
    ],
)
def test_shortened_names_of_pods_stay_distinct(
    names: list[str], container: str, columns: int
) -> None:
    """Names of pods of one workload differ at the end, those of several at the beginning."""
    shown = lines(held_by(*names, container=container), columns=columns)
    # After the index, only the name differs.
    assert len({line[15:] for line in shown}) == len(names)


@pytest.mark.parametrize("columns", [44, 64, 80, 100, 130, 200])
@pytest.mark.parametrize("pod", ["p", f"{LONG}-7c9d5f6b4-x7k2p", "0123456789" * 25, "\u65e5" * 60])
def test_the_full_name_is_shown_on_request(pod: str, columns: int) -> None:
    document = held_by(pod)
    place = heading(columns).index("HELD BY")
    parts = []
    for line in lines(document, State(whole=True), columns):
        # A character of two columns is one character of the text.
        ends = (end for end in range(place, len(line)) if width(line[place:end]) >= room(columns))
        parts.append(line[place : next(ends, len(line))])
    assert "".join("".join(parts).split()) == f"ml/{pod}(main)"
