"""Splitting the amounts of an interval among hours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ledger.change_tracker import MOST_HOURS, split_by_hour
from pipeline.ledger.schema import HOUR_NS

MINUTE = HOUR_NS // 60


@pytest.mark.parametrize(
    ("end", "time", "amounts", "parts"),
    [
        pytest.param(MINUTE, MINUTE, (7, 0), [(0, (7, 0))], id="within an hour"),
        pytest.param(HOUR_NS, MINUTE, (7,), [(0, (7,))], id="until the end of an hour"),
        pytest.param(HOUR_NS, 0, (7,), [(0, (7,))], id="of length 0, at the end"),
        pytest.param(HOUR_NS + 1, 0, (7,), [(1, (7,))], id="of length 0, after the end"),
        pytest.param(
            HOUR_NS + MINUTE, 3 * MINUTE, (9, 10), [(0, (6, 6)), (1, (3, 4))], id="across an end"
        ),
        pytest.param(
            2 * HOUR_NS + MINUTE,
            HOUR_NS + 2 * MINUTE,
            (62, 1),
            [(0, (1, 0)), (1, (60, 0)), (2, (1, 1))],
            id="across a whole hour",
        ),
    ],
)
def test_amounts_are_split_by_time(
    end: int, time: int, amounts: tuple[int, ...], parts: list[tuple[int, tuple[int, ...]]]
) -> None:
    assert list(split_by_hour(end, time, amounts)) == parts


@given(
    st.integers(0, 1 << 61),
    st.one_of(st.integers(0, 200 * HOUR_NS), st.integers(0, 1 << 80)),
    st.lists(st.integers(0, 1 << 62), max_size=4),
)
def test_parts_sum_to_the_amounts_and_none_is_negative(
    end: int, time: int, amounts: list[int]
) -> None:
    parts = list(split_by_hour(end, time, amounts))
    hours = [hour for hour, _ in parts]
    assert hours == list(range(hours[0], (end - 1) // HOUR_NS + 1))
    assert len(hours) <= MOST_HOURS + 1
    for place, amount in enumerate(amounts):
        assert sum(part[place] for _, part in parts) == amount
        assert min(part[place] for _, part in parts) >= 0
