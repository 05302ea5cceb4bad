"""What `podgpu top` shows, without a terminal."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest

from pipeline.cli.top.columns import heading, room
from pipeline.cli.top.state import QUIT, Sort, State, Tab, pressed
from pipeline.cli.top.text import width
from pipeline.cli.top.view import Feed, Frame, Style, View
from pipeline.status_page.document import GpuStatus, StatusDocument
from pipeline.status_page.making import status_of
from tests.pipeline.status_page.scenes import SCENES, begun, known_of, said, status
from tests.support.nodes import gpu, kubelet_claim, mig, reading, uuid_of


def seen(
    name: str | StatusDocument, state: State | None = None, columns: int = 80, height: int = 24
) -> Frame:
    found = status(name) if isinstance(name, str) else name
    return View().frame(Feed(found), state or State(), columns, height)


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
    line, _ = View().frame(feed, State(), 80, 24).lines[1]
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
def test_pods_are_told_apart_in_a_narrow_terminal(
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
        ("gpu5 gpu6", []),
        ("GPU5 free", [5]),
        ("gpu9", []),
        ("pu5", [5]),
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


@pytest.mark.parametrize("index", [0, 1, 2, 10, 11, 15])
@pytest.mark.parametrize("instances", [0, 2])
def test_a_filter_names_one_gpu(index: int, instances: int) -> None:
    """None whose index, or whose holder's name, begins with the same."""
    node = begun()
    cards = [gpu(n) for n in range(16)]
    parts = [mig(card, gi) for card in cards for gi in range(7, 7 + instances)]
    node.has(*cards, *parts)
    said(node, *(kubelet_claim(f"on-gpu{15 - n}", card.uuid) for n, card in enumerate(cards)))
    document = status_of(known_of(node))
    assert indexes(State(filter=f"gpu{index}"), document) == [str(index)]
    assert indexes(State(filter=f"on-gpu{15 - index}"), document)[0] == str(index)
    assert len(lines(document, State(filter=f"gpu{index}"))) == 1 + instances + bool(instances)


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
    assert (shown.offset, shown.page) == (44, 18)
    # In the place of the 45th stands the GPU's.
    assert "lines 46 to 64 of 64" in shown.lines[-1][0]
    back = seen("cut", after("up", state=replace(state, offset=shown.offset)))
    assert back.offset == 43


def many_holders(each: int = 6) -> StatusDocument:
    """Three GPUs of four instances, of which each has more holders than one."""
    node = begun()
    cards = [gpu(n) for n in range(3)]
    parts = [mig(card, gi) for card in cards for gi in range(7, 11)]
    node.has(*cards, *parts)
    said(
        node, *(kubelet_claim(f"p{n}", f"{part.uuid}::{n}") for part in parts for n in range(each))
    )
    return status_of(known_of(node))


@pytest.mark.parametrize("key", ["page-down", "page-up"])
@pytest.mark.parametrize("name", ["cut", "shared"])
@pytest.mark.parametrize("height", [5, 9, 10, 11, 24, 100])
def test_who_turns_pages_sees_every_row(key: str, name: str, height: int) -> None:
    document = status("cut") if name == "cut" else many_holders()
    state = State(whole=True, offset=0 if key == "page-down" else 1 << 30)
    found: set[str] = set()
    for _ in range(200):
        shown = seen(document, state, 110, height)
        found |= {line.rstrip() for line, _ in shown.lines[3:-1]}
        made = pressed(replace(state, offset=shown.offset), key, shown.page)
        assert made is not None
        state = made
    assert set(lines(document, State(whole=True), 110)) <= found


@pytest.mark.parametrize("name", ["cut", "shared"])
@pytest.mark.parametrize("height", [10, 11, 24])
@pytest.mark.parametrize("folded", [False, True])
def test_wherever_it_is_scrolled_every_row_says_whose_it_is(
    name: str, height: int, folded: bool
) -> None:
    """Read from above, the first cells of the rows name the GPU and the instance of each."""
    document = status("cut") if name == "cut" else many_holders()
    state = State(whole=True, folded=folded)

    def owned(found: list[str]) -> list[tuple[str, str, str]]:
        gpu = part = "?"
        rows = []
        for line in found:
            first = line[:15].strip()
            if first and not line.startswith(" "):
                gpu, part = first, ""
            elif first:
                part = first
            rows.append((gpu, part, line.rstrip()))
        return rows

    whole = owned([line for line, _ in seen(document, state, 110, 1000).lines[3:-1]])
    whole = [row for row in whole if row[2]]
    for offset in range(len(whole)):
        shown = seen(document, replace(state, offset=offset), 110, height)
        rows = owned([line for line, _ in shown.lines[3:-1] if line.strip()])
        assert set(rows) <= set(whole)
        # Each step is seen: what stands at the foot is the next row.
        assert rows[-1] == whole[min(shown.offset + len(rows), len(whole)) - 1]


def test_what_a_row_belongs_to_stands_above_it_and_out() -> None:
    shown = seen("cut", State(offset=11)).lines
    assert shown[3][1] is Style.BOLD
    assert shown[3][0].split()[0] == "1"
    assert [line.split()[:2] for line, _ in shown[4:6]] == [
        ["1g.10gb", "10/0"],
        ["1g.10gb", "11/0"],
    ]
    assert "lines 13 to 31 of 64" in shown[-1][0]


# What is kept from one moment to the next.


def test_a_frame_is_what_it_would_be_had_nothing_been_seen_before() -> None:
    """Whatever was shown before it: other answers, choices and terminals."""
    view = View()
    documents = [status(name) for name in ("cut", "troubled", "two-gpus")]
    documents.append(msgspec.structs.replace(documents[0], node="another"))
    states = [after(*keys) for keys in ("", "f", "a", "s", "?", "u", "/x", "/x\n", "j", "s")]
    sizes = [(80, 24), (80, 30), (120, 24)]
    for at in range(120):
        feed = Feed(documents[at // 7 % 4], float(at), "refused" if at % 11 == 0 else "")
        state, size = states[at // 3 % len(states)], sizes[at // 5 % 3]
        assert view.frame(feed, state, *size) == View().frame(feed, state, *size)


def test_what_was_made_of_an_answer_is_not_made_again_for_each_frame() -> None:
    """A terminal is drawn four times a second, also while a filter is typed or rows scroll."""
    made = 0

    class Counted(tuple[GpuStatus, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[GpuStatus]:
            nonlocal made
            made += 1
            return super().__iter__()

    view, document = View(), status("cut")
    document = msgspec.structs.replace(document, gpus=Counted(document.gpus or ()))
    view.frame(Feed(document), State(), 80, 24)
    before = made
    assert before > 0
    for state in (State(), State(offset=9), State(typing=True), State(before="x")):
        view.frame(Feed(document, 7.0, "refused"), state, 80, 50)
    assert made == before
    view.frame(Feed(document), State(folded=True), 80, 24)
    assert made == before + 1
