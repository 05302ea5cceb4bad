"""Graphs in block characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgpu.cli.top.block_graph import graph


@pytest.mark.parametrize(
    ("values", "columns", "rows", "expected"),
    [
        ([0.0, 0.5, 1.0], 3, 1, ["▁▄█"]),
        ([None, 0.0, 0.01], 3, 1, [" ▁▁"]),
        ([1.5, -1.0], 2, 1, ["█▁"]),
        ([0.5], 4, 1, ["▄▄▄▄"]),
        ([0.0, 1.0], 1, 1, ["▄"]),
        ([None, 1.0], 1, 1, ["█"]),
        ([None, None], 1, 1, [" "]),
        ([], 3, 1, ["   "]),
        ([], 3, 2, ["   ", "   "]),
        ([0.5], 0, 1, [""]),
        ([0.0, 0.5, 1.0], 3, 2, ["  ▇", "▁██"]),
        ([0.75], 1, 2, ["▃", "█"]),
    ],
)
def test_a_graph(values: list[float | None], columns: int, rows: int, expected: list[str]) -> None:
    assert graph(values, columns, rows) == expected


def test_two_high_graphs_below_each_other_do_not_touch() -> None:
    assert "█" not in graph([1.0], 1, 2)[0]


VALUES = st.lists(st.none() | st.floats(-1, 2), max_size=130)


@given(VALUES, st.integers(0, 60), st.integers(1, 4))
def test_a_graph_has_its_size_and_shows_every_known_value(
    values: list[float | None], columns: int, rows: int
) -> None:
    lines = graph(values, columns, rows)
    assert [len(line) for line in lines] == [columns] * rows
    known = [value for value in values if value is not None]
    if columns and known:
        assert lines[-1].strip()
    if not known:
        assert not "".join(lines).strip()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 3))
def test_a_higher_value_is_not_lower_in_a_graph(values: list[float], rows: int) -> None:
    ordered = sorted(values)
    columns = list(zip(*graph(ordered, len(ordered), rows), strict=True))
    heights = [sum(" ▁▂▃▄▅▆▇█".index(character) for character in each) for each in columns]
    assert heights == sorted(heights)
