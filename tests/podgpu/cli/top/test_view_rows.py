"""Rows of `podgpu top` are sorted, filtered, folded and scrolled."""

from dataclasses import replace
from itertools import pairwise

import pytest

from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.ui_state import Sort, State, Tab, pressed
from podgpu.cli.top.view import Style
from tests.pipeline.status_page.scenes import report_claims, started_node, status, status_input
from tests.podgpu.cli.top.views import frame_of, lines, state_after
from tests.support.nodes import gpu, kubelet_claim, mig, reading, uuid_of

# Sorting, filtering, folding.


def indexes(state: State, document: StatusDocument | str = "mig") -> list[str]:
    """Return the first words of the rows of GPUs."""
    return [line.split()[0] for line in lines(document, state) if not line.startswith(" ")]


def busy_node() -> StatusDocument:
    """Three GPUs, each of which is first in another order, and a GPU without readings."""
    node = started_node()
    node.has(*(gpu(n) for n in range(4)))
    report_claims(
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
    return status_of(status_input(node))


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (Sort.INDEX, "0123"),
        (Sort.UTILIZATION, "2013"),
        (Sort.MEMORY, "1023"),
        (Sort.POWER, "0213"),
        (Sort.POD, "1203"),
    ],
)
def test_gpus_are_sorted(sort: Sort, expected: str) -> None:
    """Unknown values come last; 0 is known."""
    assert "".join(indexes(State(sort=sort), busy_node())) == expected


def test_instances_stay_below_their_gpu_in_the_same_order() -> None:
    shown = lines("mig", State(sort=Sort.UTILIZATION))
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
    ("words", "expected"),
    [
        ("notebook-3-4", [3]),
        ("NOTEBOOK-3-4 jupyter", [3]),
        ("notebook-3-4 missing", []),
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
def test_a_filter_selects_rows_by_words(words: str, expected: list[int]) -> None:
    shown = lines("mig", State(filter=words))
    found = [int(line.split()[0]) for line in shown if not line.startswith((" ", "N"))]
    assert found == expected
    if not expected:
        assert shown == ["No row matches the filter."]


def test_a_filter_selects_matching_instances_and_their_gpu() -> None:
    assert [line.split()[0] for line in lines("mig", State(filter="notebook-3-4"))] == [
        "3",
        "1g.10gb",
    ]
    assert len(lines("mig", State(filter="gpu5"))) == 8
    assert len([x for x in lines("mig", State(filter="free")) if "free" in x]) == 14


@pytest.mark.parametrize("index", [0, 1, 2, 10, 11, 15])
@pytest.mark.parametrize("instances", [0, 2])
def test_a_filter_can_select_a_single_gpu(index: int, instances: int) -> None:
    """GPUs and holders whose index or name begins with the same text do not match."""
    node = started_node()
    cards = [gpu(n) for n in range(16)]
    parts = [mig(card, gi) for card in cards for gi in range(7, 7 + instances)]
    node.has(*cards, *parts)
    report_claims(
        node, *(kubelet_claim(f"on-gpu{15 - n}", card.uuid) for n, card in enumerate(cards))
    )
    document = status_of(status_input(node))
    assert indexes(State(filter=f"gpu{index}"), document) == [str(index)]
    assert indexes(State(filter=f"on-gpu{15 - index}"), document)[0] == str(index)
    assert len(lines(document, State(filter=f"gpu{index}"))) == 1 + instances + bool(instances)


def test_folded_rows_are_one_line_for_each_gpu() -> None:
    shown = lines("mig", State(folded=True))
    assert [line.split()[0] for line in shown] == [str(n) for n in range(8)]
    assert all("of 7 instances held" in line for line in shown)


def test_many_holders_are_counted_until_all_are_requested() -> None:
    node = started_node()
    node.has(gpu(0))
    report_claims(node, *(kubelet_claim(f"p{n:02}", f"{uuid_of(0)}::{n}") for n in range(70)))
    document = status_of(status_input(node))
    few, many = lines(document), lines(document, State(whole=True))
    assert ["p00" in few[0], "p01" in few[1]] == [True, True]
    assert [line.strip() for line in few[2:]] == ["and 68 more"]
    assert len(many) == 65
    assert many[-1].strip() == "and 6 more"


def test_a_gpu_that_is_held_in_addition_to_its_instances() -> None:
    node = started_node()
    node.has(gpu(0), mig(gpu(0), 7))
    report_claims(node, kubelet_claim("whole", uuid_of(0)))
    shown = lines(status_of(status_input(node)))
    assert "instances:" in shown[0]
    assert "ml/whole (main)" in shown[1]


# Keys.


@pytest.mark.parametrize(
    ("keys", "expected"),
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
def test_keys_change_the_state(keys: str, expected: State) -> None:
    assert state_after(*keys) == expected


def test_escape_discards_the_typed_text_and_then_the_filter() -> None:
    filtered = state_after("/", "a", "enter", "/", "b", "escape")
    assert (filtered.filter, filtered.typing) == ("a", False)
    assert state_after("escape", state=filtered).filter == ""


def test_q_ends_the_program() -> None:
    assert pressed(State(), "q", 20) is None
    assert pressed(State(tab=Tab.COMPONENTS), "q", 20) is None


def test_a_filter_has_a_maximum_length() -> None:
    assert len(state_after("/", *"x" * 500).filter) == 60


def test_scrolling_ends_at_the_last_row() -> None:
    state = state_after("end")
    shown = frame_of("mig", state)
    assert (shown.offset, shown.page) == (44, 18)
    # The first line below the heading shows the GPU in place of row 45.
    assert "lines 46 to 64 of 64" in shown.lines[-1][0]
    back = frame_of("mig", state_after("up", state=replace(state, offset=shown.offset)))
    assert back.offset == 43


def many_holders(each: int = 6) -> StatusDocument:
    """Three GPUs with four instances each, and several holders of each instance."""
    node = started_node()
    cards = [gpu(n) for n in range(3)]
    parts = [mig(card, gi) for card in cards for gi in range(7, 11)]
    node.has(*cards, *parts)
    report_claims(
        node, *(kubelet_claim(f"p{n}", f"{part.uuid}::{n}") for part in parts for n in range(each))
    )
    return status_of(status_input(node))


@pytest.mark.parametrize("key", ["page-down", "page-up"])
@pytest.mark.parametrize("name", ["mig", "shared"])
@pytest.mark.parametrize("height", [5, 9, 10, 11, 24, 100])
def test_paging_shows_every_row(key: str, name: str, height: int) -> None:
    document = status("mig") if name == "mig" else many_holders()
    state = State(whole=True, offset=0 if key == "page-down" else 1 << 30)
    found: set[str] = set()
    offsets: list[int] = []
    for _ in range(200):
        shown = frame_of(document, state, 110, height)
        if offsets[-1:] == [shown.offset]:
            break  # at the other end
        offsets.append(shown.offset)
        found |= {line.rstrip() for line, _ in shown.lines[3:-1]}
        new_state = pressed(replace(state, offset=shown.offset), key, shown.page)
        assert new_state is not None
        state = new_state
    assert set(lines(document, State(whole=True), 110)) <= found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mig", "shared"])
@pytest.mark.parametrize("height", [10, 11, 24])
@pytest.mark.parametrize("folded", [False, True])
def test_at_any_offset_the_gpu_and_instance_of_each_row_are_visible(
    name: str, height: int, folded: bool
) -> None:
    """The first cells of the rows above a row name its GPU and its instance."""
    document = status("mig") if name == "mig" else many_holders()
    state = State(whole=True, folded=folded)

    def with_owners(found: list[str]) -> list[tuple[str, str, str]]:
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

    whole = with_owners([line for line, _ in frame_of(document, state, 110, 1000).lines[3:-1]])
    whole = [row for row in whole if row[2]]
    for offset in range(len(whole)):
        shown = frame_of(document, replace(state, offset=offset), 110, height)
        rows = with_owners([line for line, _ in shown.lines[3:-1] if line.strip()])
        assert set(rows) <= set(whole)
        # Each step is visible: the last line shows the next row.
        assert rows[-1] == whole[min(shown.offset + len(rows), len(whole)) - 1]


def test_the_gpu_of_the_first_row_stays_visible_in_bold() -> None:
    shown = frame_of("mig", State(offset=11)).lines
    assert shown[3][1] is Style.BOLD
    assert shown[3][0].split()[0] == "1"
    assert [line.split()[:2] for line, _ in shown[4:6]] == [
        ["1g.10gb", "10/0"],
        ["1g.10gb", "11/0"],
    ]
    assert "lines 13 to 31 of 64" in shown[-1][0]
