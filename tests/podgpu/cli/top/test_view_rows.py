"""Rows of `podgpu top` are sorted, filtered, folded and scrolled."""

from dataclasses import replace
from itertools import pairwise

import pytest

from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.styled_text import Style
from podgpu.cli.top.ui_state import Sort, State, View, pressed
from tests.pipeline.status_page.scenes import report_claims, started_node, status_input
from tests.podgpu.cli.top.views import document_of, frame_of, lines, state_after, texts
from tests.support.nodes import gpu, kubelet_claim, mig, reading, uuid_of

# Sorting, filtering, folding.


def indexes(state: State, document: StatusDocument | str = "mig") -> list[str]:
    """Return the first words of the rows of GPUs."""
    return [line.split()[0] for line in lines(document, state) if line[:1].isdigit()]


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
            groups[-1].append(int(line.partition("%")[0].split()[-1]))
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
    found = [int(line.split()[0]) for line in shown if line[:1].isdigit()]
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
    below = [x for x in lines(document, State(filter=f"gpu{index}")) if "1g.10gb" in x]
    assert len(below) == instances


def test_folded_rows_count_the_held_instances() -> None:
    shown = lines("mig", State(folded=True))
    rows = [line for line in shown if line[:1].isdigit()]
    assert [line.split()[0] for line in rows] == [str(n) for n in range(8)]
    assert all("of 7 held" in line for line in rows)
    assert "1g.10gb" not in "".join(shown)


def test_many_holders_are_counted_until_all_are_requested() -> None:
    node = started_node()
    node.has(gpu(0))
    report_claims(node, *(kubelet_claim(f"p{n:02}", f"{uuid_of(0)}::{n}") for n in range(70)))
    document = status_of(status_input(node))
    few, many = lines(document)[1:4], lines(document, State(whole=True))[1:]
    assert ["p00" in few[0], "p01" in few[1]] == [True, True]
    assert few[2].strip() == "and 68 more"
    assert len([line for line in many if "ml/p" in line]) == 64
    assert many[64].strip() == "and 6 more"


def test_a_gpu_that_is_held_in_addition_to_its_instances() -> None:
    node = started_node()
    node.has(gpu(0), mig(gpu(0), 7))
    report_claims(node, kubelet_claim("whole", uuid_of(0)))
    shown = lines(status_of(status_input(node)))
    assert "ml/whole (main)" in shown[1]
    assert "1g.10gb 7/0 not held" in shown[2]


def test_the_only_holder_of_an_instance_is_in_its_row() -> None:
    [row] = [line for line in lines("mig", columns=200) if "notebook-3-4" in line]
    assert row.startswith("  1g.10gb 11/0 ml/notebook-3-4-7c9d5f6b4 (jupyter)")


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
        ("s", State(view=View.COMPONENTS)),
        ("aa", State()),
        ("x", State(processes=True)),
        ("e", State(evidence=True)),
        ("!", State(view=View.PROBLEMS)),
        ("!!", State()),
        ("d", State(view=View.USAGE)),
        ("d!", State(view=View.PROBLEMS)),
        ("de", State(evidence=True)),
        ("\t", State(view=View.PROBLEMS)),
        ("\t\t\t\t", State()),
        ("su", State(sort=Sort.UTILIZATION)),
        ("?", State(view=View.HELP)),
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


@pytest.mark.parametrize("key", ["!", "d", "s"])
def test_escape_goes_back_to_the_overview_and_keeps_the_filter(key: str) -> None:
    state = state_after("/", "a", "enter", key, "escape")
    assert state == State(filter="a")


def test_q_ends_the_program() -> None:
    assert pressed(State(), "q", 20) is None
    assert pressed(State(view=View.COMPONENTS), "q", 20) is None


def test_a_filter_has_a_maximum_length() -> None:
    assert len(state_after("/", *"x" * 500).filter) == 60


def test_scrolling_ends_at_the_last_row() -> None:
    document = document_of("mig")
    count = len(frame_of(document, height=1000).lines)
    shown = frame_of(document, state_after("end"))
    assert texts(shown)[-1].rstrip().endswith(" 52-71 of 71")
    assert count == 1000
    assert "metrics" in texts(shown)[-2]
    back = frame_of("mig", state_after("up", state=State(offset=shown.offset)))
    assert back.offset == shown.offset - 1


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
@pytest.mark.parametrize("size", [(110, 5), (110, 9), (110, 11), (110, 24), (110, 100), (40, 24)])
def test_paging_shows_every_row(key: str, name: str, size: tuple[int, int]) -> None:
    document = document_of("mig") if name == "mig" else many_holders()
    state = State(whole=True, offset=0 if key == "page-down" else 1 << 30)
    found: set[str] = set()
    offsets: list[int] = []
    for _ in range(200):
        shown = frame_of(document, state, *size)
        if offsets[-1:] == [shown.offset]:
            break  # at the other end
        offsets.append(shown.offset)
        found |= {line.rstrip() for line in texts(shown)[:-1]}
        new_state = pressed(replace(state, offset=shown.offset), key, shown.page)
        assert new_state is not None
        state = new_state
    assert set(lines(document, State(whole=True), size[0])) <= found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mig", "shared"])
@pytest.mark.parametrize("height", [10, 11, 24])
@pytest.mark.parametrize("folded", [False, True])
def test_at_any_offset_the_gpu_and_instance_of_each_row_are_visible(
    name: str, height: int, folded: bool
) -> None:
    """The first cells of the rows above a row name its GPU and its instance."""
    document = document_of("mig") if name == "mig" else many_holders()
    state = State(whole=True, folded=folded)

    def with_owners(found: list[str]) -> list[tuple[str, str, str]]:
        gpu = part = "?"
        rows = []
        for line in found:
            if line[:1].isdigit():
                gpu, part = line[:15], ""
            elif not line.startswith("   "):
                part = line[:15]
            rows.append((gpu, part, line))
        return rows

    whole = with_owners(lines(document, state, 110))
    for offset in range(len(whole)):
        shown = frame_of(document, replace(state, offset=offset), 110, height)
        start = next(at for at, line in enumerate(texts(shown)) if line.startswith("GPU, HELD")) + 1
        found = [line.rstrip() for line in texts(shown)[start:-1]]
        if "" in found:  # the end of the devices
            found = found[: found.index("")]
        assert set(with_owners(found)) <= set(whole)


def test_the_gpu_of_the_first_row_stays_visible_in_bold() -> None:
    shown = frame_of("mig", State(offset=11))
    assert {span.style for span in shown.lines[2]} == {Style.STRONG}
    first, second, third = (line.split()[:2] for line in texts(shown)[2:5])
    assert first[0] == "1"
    assert [second, third] == [["1g.10gb", "10/0"], ["1g.10gb", "11/0"]]
    assert " 13-32 of " in texts(shown)[-1]
