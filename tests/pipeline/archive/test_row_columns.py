"""Canonical rows, and rows that are refused."""

from datetime import date

import pytest

from pipeline.archive.row_columns import (
    COLUMNS,
    KINDS,
    Row,
    canonical_line,
    day_of_hour,
    day_of_moment,
    hour_text,
)


def test_a_row_has_its_columns_in_order_and_no_nulls() -> None:
    row: Row = {"serial": 3, "cluster": "prod", "busy_ns": None, "pod": 'a"\n\x00é', "row": "usage"}
    expected = '{"cluster":"prod","serial":3,"row":"usage","pod":"a\\"\\n\\u0000é"}'
    assert canonical_line(row) == expected.encode()


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"colour": "red"}, "no column 'colour'"),
        ({"serial": "1"}, "'1' is no BIGINT"),
        ({"serial": True}, "True is no BIGINT"),
        ({"serial": 2**63}, "is no BIGINT"),
        ({"gpu_index": 2**31}, "is no INTEGER"),
        ({"pod": 1}, "1 is no VARCHAR"),
        ({"day": 20000}, "20000 is no DATE"),
    ],
)
def test_other_values_are_refused(row: Row, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        canonical_line(row)


def test_limits_of_numbers_are_values() -> None:
    assert canonical_line({"serial": 2**63 - 1, "start_ns": -(2**63)})


def test_hours_and_days() -> None:
    assert hour_text(0) == "1970-01-01T00:00:00Z"
    assert hour_text(498_000) == "2026-10-24T00:00:00Z"
    assert day_of_hour(23) == date(1970, 1, 1)
    assert day_of_hour(24) == date(1970, 1, 2)
    assert day_of_moment(86_400_000_000_000 - 1) == date(1970, 1, 1)
    assert day_of_moment(86_400_000_000_000) == date(1970, 1, 2)


def test_each_column_is_there_once_and_is_explained() -> None:
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    for column in COLUMNS:
        assert column.meaning
        assert set(column.kinds) <= set(KINDS)
        assert column.type in {"VARCHAR", "INTEGER", "BIGINT", "DATE", "TIMESTAMPTZ"}
