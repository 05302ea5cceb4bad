"""What `podgpu top` shows, without a terminal."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest

from pipeline.cli.top.state import QUIT, Sort, State, Tab, pressed
from pipeline.cli.top.text import width
from pipeline.cli.top.view import Feed, Frame, Style, frame
from pipeline.status_page.document import StatusDocument
from pipeline.status_page.making import status_of
from tests.pipeline.status_page.scenes import SCENES, begun, known_of, said, status
from tests.support.nodes import gpu, kubelet_claim, mig, reading, uuid_of


def seen(
    name: str | StatusDocument, state: State | None = None, columns: int = 80, height: int = 24
) -> Frame:
    found = status(name) if isinstance(name, str) else name
    return frame(Feed(found), state or State(), columns, height)


def lines(name: str | StatusDocument, state: State | None = None, columns: int = 80) -> list[str]:
    """All lines of the body, without blanks at their ends."""
    shown = seen(name, state, columns, 1000).lines[3:-1]
    return [line.rstrip() for line, _ in shown if line.strip()]


def after(*keys: str, state: State | None = None) -> State:
    found = state or State()
    for key in keys:
        made = pressed(found, key, 20)
        assert made is not None
        found = made
    return found


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
    assert shown[5].split()[-2:] == ["ml/notebook-0-1-7c9d~", "10m+"]
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
    assert first.split() == ["0", "[|||||]", "93%", "ml/train-~", "10m+"]


def test_states_and_holders() -> None:
    assert [" ".join(line.split()) for line in lines("troubled")] == [
        "0 LOST [ ] - - - - held by nobody",
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
        ("no-driver", "No source has told of GPUs yet."),
        ("nothing-yet", "No source has told of GPUs yet."),
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
    ("seconds", "told", "known"),
    [
        (59, "59s+", "59s"),
        (7200, "2h+", "2h"),
        (98 * 86_400, "98d+", "98d"),
        (400 * 86_400, "99d+", "400d"),
    ],
)
def test_for_how_long_at_least(seconds: int, told: str, known: str) -> None:
    document = status("two-gpus")
    assert document.gpus is not None
    card, other = document.gpus
    assert card.holders is not None
    for since_known, wanted in ((False, told), (True, known)):
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
        ("troubled", "! (and 5 more) GPU 0 is lost: it was there, and does not answer any more"),
        ("no-driver", "! (and 1 more) no source has told of GPUs: gpus can't work"),
        ("nothing-yet", "not ready: waiting for the first word of: gpus, kubelet"),
    ],
)
def test_what_needs_somebody_stands_in_the_second_line(name: str, wanted: str) -> None:
    assert seen(name).lines[1][0].rstrip() == wanted


def test_no_answer_stands_before_all_else_there() -> None:
    feed = Feed(status("troubled"), 125.0, "connection refused")
    line, _ = frame(feed, State(), 80, 24).lines[1]
    assert line.rstrip() == "! no answer for 2 min: connection refused"


# Sources and sinks.


def test_sources_and_sinks_with_their_errors() -> None:
    shown = "\n".join(
        line.rstrip() for line, _ in seen("troubled", State(tab=Tab.COMPONENTS)).lines
    )
    for wanted in (
        "kubelet            podresources  down      10 min ago 10 min ago",
        "    error 20 s ago: /run/x.sock: connection refused; is the kubelet running?",
        "podlist            podlist       up        6 min ago  6 min ago",
        "    error 8 min ago, over: the file is not there",
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


# Sorting, filtering, folding.


def indexes(state: State, document: StatusDocument | str = "cut") -> list[str]:
    """First words of the rows of GPUs."""
    return [line.split()[0] for line in lines(document, state) if not line.startswith(" ")]


def busy_node() -> StatusDocument:
    """Three GPUs, each the first by another measure; of the last nothing is known."""
    node = begun()
    node.has(*(gpu(n) for n in range(4)))
    said(
        node,
        kubelet_claim("c", uuid_of(0)),
        kubelet_claim("a", uuid_of(1)),
        kubelet_claim("b", uuid_of(2)),
    )
    figures = {
        "gpu_utilization_percent": (10, 0, 30),
        "memory_used_bytes": (20 << 30, 30 << 30, 10 << 30),
        "power_watts": (300, 100, 200),
    }
    node.reads(
        *(
            reading(gpu(n), field, value)
            for field, values in figures.items()
            for n, value in enumerate(values)
        )
    )
    return status_of(known_of(node))


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [
        (Sort.INDEX, "0123"),
        (Sort.UTILIZATION, "2013"),
        (Sort.MEMORY, "1023"),
        (Sort.POWER, "0213"),
        (Sort.POD, "1203"),
    ],
)
def test_the_order(sort: Sort, wanted: str) -> None:
    """What is unknown comes last; 0 is known."""
    assert "".join(indexes(State(sort=sort), busy_node())) == wanted


def test_instances_stay_below_their_gpu_in_the_same_order() -> None:
    shown = lines("cut", State(sort=Sort.UTILIZATION))
    groups: list[list[int]] = []
    for line in shown:
        if not line.startswith(" "):
            groups.append([])
        else:
            groups[-1].append(int(line.partition("]")[2].split("%")[0]))
    assert len(groups) == 8
    assert all(group == sorted(group, reverse=True) for group in groups)
    assert all(a[0] >= b[0] for a, b in pairwise(groups))


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("notebook-3-4", [3]),
        ("NOTEBOOK-3-4 jupyter", [3]),
        ("notebook-3-4 nobody", []),
        ("gpu5", [5]),
        ("podresources", []),
        ("kubelet_ids", list(range(8))),
        (uuid_of(6), [6]),
    ],
)
def test_a_filter(words: str, wanted: list[int]) -> None:
    shown = lines("cut", State(filter=words))
    found = [int(line.split()[0]) for line in shown if not line.startswith((" ", "N"))]
    assert found == wanted
    if not wanted:
        assert shown == ["Nothing has these words."]


def test_a_filter_leaves_the_instances_that_have_the_words_and_their_gpu() -> None:
    assert [line.split()[0] for line in lines("cut", State(filter="notebook-3-4"))] == [
        "3",
        "1g.10gb",
    ]
    assert len(lines("cut", State(filter="gpu5"))) == 8
    assert len([x for x in lines("cut", State(filter="free")) if "free" in x]) == 14


def test_folded_there_is_a_line_for_each_gpu() -> None:
    shown = lines("cut", State(folded=True))
    assert [line.split()[0] for line in shown] == [str(n) for n in range(8)]
    assert all("of 7 instances held" in line for line in shown)


def test_a_gpu_of_many_names_some_and_counts_the_rest_until_all_are_asked_for() -> None:
    node = begun()
    node.has(gpu(0))
    said(node, *(kubelet_claim(f"p{n:02}", f"{uuid_of(0)}::{n}") for n in range(70)))
    document = status_of(known_of(node))
    few, many = lines(document), lines(document, State(whole=True))
    assert ["p00" in few[0], "p01" in few[1]] == [True, True]
    assert [line.strip() for line in few[2:]] == ["and 68 more"]
    assert len(many) == 65
    assert many[-1].strip() == "and 6 more"


def test_a_gpu_that_is_held_beside_its_instances() -> None:
    node = begun()
    node.has(gpu(0), mig(gpu(0), 7))
    said(node, kubelet_claim("whole", uuid_of(0)))
    shown = lines(status_of(known_of(node)))
    assert "instances:" in shown[0]
    assert "ml/whole (main)" in shown[1]


# Keys.


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("u", State(sort=Sort.UTILIZATION)),
        ("mi", State()),
        ("w", State(sort=Sort.POWER)),
        ("p", State(sort=Sort.POD)),
        ("f", State(folded=True)),
        ("ff", State()),
        ("a", State(whole=True)),
        ("s", State(tab=Tab.COMPONENTS)),
        ("\t\t", State()),
        ("su", State(sort=Sort.UTILIZATION)),
        ("?", State(tab=Tab.HELP)),
        ("?q", State()),
        ("Z", State()),
        ("jjk", State(offset=1)),
        ("k", State()),
        ("  ", State(offset=40)),
        ("jg", State()),
        ("/ab\n", State(filter="ab")),
        ("/q?u", State(filter="q?u", typing=True)),
        ("/ab\x7f\r", State(filter="a")),
        ("/ab\x15c\n", State(filter="c")),
        ("/a\x00\n", State(filter="a")),
    ],
)
def test_keys(keys: str, wanted: State) -> None:
    assert after(*keys) == wanted


def test_escape_takes_back_what_is_typed_and_then_the_filter() -> None:
    kept = after("/", "a", "enter", "/", "b", "escape")
    assert (kept.filter, kept.typing) == ("a", False)
    assert after("escape", state=kept).filter == ""


def test_q_ends_it() -> None:
    assert pressed(State(), "q", 20) is QUIT
    assert pressed(State(tab=Tab.COMPONENTS), "q", 20) is QUIT


def test_a_filter_has_a_bound() -> None:
    assert len(after("/", *"x" * 500).filter) == 60


def test_scrolling_ends_where_the_rows_end() -> None:
    state = after("end")
    shown = seen("cut", state)
    assert (shown.offset, shown.page) == (44, 20)
    assert "lines 45 to 64 of 64" in shown.lines[-1][0]
    back = seen("cut", after("up", state=replace(state, offset=shown.offset)))
    assert back.offset == 43


def test_a_page_down_leaves_no_row_out() -> None:
    state, found = State(), []
    for _ in range(4):
        shown = seen("cut", state)
        state = replace(state, offset=shown.offset)
        found += [line for line, _ in shown.lines[3:-1]]
        state = after("page-down", state=state)
    assert set(lines("cut")) <= {line.rstrip() for line in found}
