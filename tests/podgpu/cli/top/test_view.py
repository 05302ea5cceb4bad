"""What `podgpu top` shows, without a terminal."""

from datetime import timedelta

import msgspec
import pytest

from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.terminal_text import width
from podgpu.cli.top.columns import heading, room
from podgpu.cli.top.ui_state import State, Tab
from podgpu.cli.top.view import Feed, Style, View
from tests.pipeline.status_page.scenes import SCENES, begun, known_of, said, status
from tests.podgpu.cli.top.views import after, lines, seen
from tests.support.nodes import gpu, kubelet_claim

# The whole.


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (20, 5), (1, 1), (5, 3)])
@pytest.mark.parametrize("keys", ["", "f", "a", "s", "?", "u", "/x"])
def test_every_line_is_as_wide_as_the_terminal(name: str, size: tuple[int, int], keys: str) -> None:
    shown = seen(name, after(*keys), *size)
    assert len(shown.lines) == size[1]
    for line, _ in shown.lines:
        assert width(line) == size[0]
        assert line.isprintable()


def test_eight_gpus_of_seven_instances_at_80_by_24() -> None:
    shown = [line for line, _ in seen("cut").lines]
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
    assert [style for _, style in seen("cut").lines][:4] == [
        Style.REVERSE,
        Style.BOLD,
        Style.BOLD,
        Style.PLAIN,
    ]


def test_a_wide_terminal_shows_more() -> None:
    [_, _, second, *_] = lines("cut", columns=160)
    assert "ml/notebook-0-1-7c9d5f6b4 (jupyter)" in second
    assert second.endswith("kubelet: kubelet_ids")
    assert "1 replica" in "\n".join(lines("troubled", columns=120))


def test_a_narrow_one_keeps_who_holds_what() -> None:
    [first, _] = lines("two-gpus", columns=44)
    assert first.split() == ["0", "[|||||]", "93%", "ml/train-0", "10m+"]


def test_states_and_holders() -> None:
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
    ("name", "wanted"),
    [
        ("no-driver", "No source has reported GPUs yet."),
        ("nothing-yet", "No source has reported GPUs yet."),
    ],
)
def test_nothing_to_show(name: str, wanted: str) -> None:
    assert lines(name) == [wanted]


def test_a_node_without_gpus() -> None:
    node = begun()
    node.has()
    assert lines(status_of(known_of(node))) == ["This node has no GPU."]


def test_what_is_unknown_is_a_dash() -> None:
    [line] = lines("no-holders")
    assert line.split() == ["0", "UNKNOWN", "[", "]", "-", "-", "-", "-", "unknown"]


@pytest.mark.parametrize(
    ("seconds", "given_out", "known"),
    [
        (59, "59s+", "59s"),
        (7200, "2h+", "2h"),
        (98 * 86_400, "98d+", "98d"),
        (400 * 86_400, "99d+", "400d"),
    ],
)
def test_for_how_long_at_least(seconds: int, given_out: str, known: str) -> None:
    document = status("two-gpus")
    assert document.gpus is not None
    card, other = document.gpus
    assert card.holders is not None
    for since_known, wanted in ((False, given_out), (True, known)):
        holder = msgspec.structs.replace(
            card.holders[0],
            since=document.time - timedelta(seconds=seconds),
            since_known=since_known,
        )
        held = msgspec.structs.replace(card, holders=(holder,))
        assert lines(msgspec.structs.replace(document, gpus=(held, other)))[0].endswith(
            f" {wanted}"
        )


# The second line.


@pytest.mark.parametrize(
    ("name", "wanted"),
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
def test_what_needs_someone_stands_in_the_second_line(name: str, wanted: str) -> None:
    assert seen(name).lines[1][0].rstrip() == wanted


def test_no_answer_stands_before_all_else_there() -> None:
    feed = Feed(status("troubled"), 125.0, "connection refused")
    line, _ = View().frame(feed, State(), 80, 24).lines[1]
    assert line.rstrip() == "! no response for 2 min: connection refused"


# Sources and sinks.


def test_sources_and_sinks_with_their_errors() -> None:
    shown = "\n".join(
        line.rstrip() for line, _ in seen("troubled", State(tab=Tab.COMPONENTS)).lines
    )
    for wanted in (
        "kubelet            podresources  down      10 min ago 10 min ago",
        "    error 20 s ago: /run/x.sock: connection refused; is the kubelet running?",
        "podlist            podlist       up        6 min ago  6 min ago",
        "    error 8 min ago, resolved: the file is not there",
        "push               otlp          stuck     12 345     7",
        "metrics            prometheus    -         -          -",
    ):
        assert wanted in shown


def test_a_long_error_is_shown_whole() -> None:
    text = "the end of this is what says how to mend it " * 6
    source = status("troubled").sources[1]
    assert source.error is not None
    error = msgspec.structs.replace(source.error, text=text)
    said_of = msgspec.structs.replace(source, error=error)
    document = msgspec.structs.replace(status("troubled"), sources=(said_of,))
    shown = [line for line, _ in seen(document, State(tab=Tab.COMPONENTS)).lines]
    joined = "".join(line[4:] for line in shown if line.startswith("    "))
    assert text.strip() in joined


# Names.


def held_by(*names: str, container: str = "main") -> StatusDocument:
    """A GPU for each of these pods."""
    node = begun()
    cards = [gpu(n) for n in range(len(names))]
    node.has(*cards)
    pairs = zip(names, cards, strict=True)
    said(node, *(kubelet_claim(name, card.uuid, container=container) for name, card in pairs))
    return status_of(known_of(node))


LONG = "llama-70b-pretraining-worker"


@pytest.mark.parametrize(
    ("pod", "container", "wanted"),
    [
        ("train-0", "main", "ml/train-0 (main)"),
        ("train-0", "a-long-sidecar", "ml/train-0 (a-long-s~"),
        (f"{LONG}-0", "main", "ml/lla~orker-0 (main)"),
        (f"{LONG}-0", "trainer", "ml/llama-7~g-worker-0"),
        ("x" * 17, "main", f"ml/{'x' * 17}~"),
        ("x" * 18, "main", f"ml/{'x' * 18}"),
    ],
)
def test_a_name_that_is_too_long(pod: str, container: str, wanted: str) -> None:
    [line] = lines(held_by(pod, container=container))
    assert line[-26:-5].rstrip() == wanted


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
def test_pods_are_reported_apart_in_a_narrow_terminal(
    names: list[str], container: str, columns: int
) -> None:
    """Those of one workload differ at their end, those of several at their beginning."""
    shown = lines(held_by(*names, container=container), columns=columns)
    # Behind the index, all that differs is the name.
    assert len({line[15:] for line in shown}) == len(names)


@pytest.mark.parametrize("columns", [44, 64, 80, 100, 130, 200])
@pytest.mark.parametrize("pod", ["p", f"{LONG}-7c9d5f6b4-x7k2p", "0123456789" * 25, "\u65e5" * 60])
def test_all_of_a_name_is_there_once_it_is_asked_for(pod: str, columns: int) -> None:
    document = held_by(pod)
    place = heading(columns).index("HELD BY")
    parts = []
    for line in lines(document, State(whole=True), columns):
        # A letter that takes two columns is one place of the text.
        ends = (end for end in range(place, len(line)) if width(line[place:end]) >= room(columns))
        parts.append(line[place : next(ends, len(line))])
    assert "".join("".join(parts).split()) == f"ml/{pod}(main)"
