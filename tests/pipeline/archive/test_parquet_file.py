"""Parquet files: equal bytes for equal rows, values as they were, formats of other releases."""

from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.archive.database import Database, open_database
from pipeline.archive.parquet_file import read_metadata, read_query, write_query, write_rows
from pipeline.archive.row_columns import COLUMNS, canonical_line
from pipeline.base.errors import PermanentError
from tests.pipeline.archive.rows import usage_row

TYPES = {
    "VARCHAR": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DATE": st.dates(min_value=date(1970, 1, 1)).map(str),
    "TIMESTAMPTZ": st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(  # noqa: DTZ001
        lambda t: f"{t:%Y-%m-%dT%H:00:00Z}"
    ),
}
ROWS = st.fixed_dictionaries(
    {"serial": TYPES["BIGINT"]},
    optional={c.name: TYPES[c.type] for c in COLUMNS if c.name != "serial"},
)


def test_equal_rows_make_equal_bytes(database: Database, tmp_path: Path) -> None:
    lines = [canonical_line(usage_row(serial)) for serial in range(1, 500)]
    for name in ("a.parquet", "b.parquet"):
        write_rows(database, lines, tmp_path / name)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["a.parquet", "b.parquet"]


@pytest.mark.slow
@settings(max_examples=30)
@given(rows=st.lists(ROWS, min_size=1, max_size=5, unique_by=lambda row: row["serial"]))
def test_each_value_is_read_as_it_was_written(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder, open_database(Path(folder)) as database:
        file = Path(folder) / "rows.parquet"
        write_rows(database, [canonical_line(row) for row in rows], file)
        found = database.execute(f"{read_query([file])} ORDER BY serial")
    expected = [
        tuple(_read(row.get(column.name), column.type) for column in COLUMNS)
        for row in sorted(rows, key=lambda row: row["serial"])
    ]
    assert found == expected


def _read(value: object, kind: str) -> object:
    if kind == "DATE" and value is not None:
        return date.fromisoformat(str(value))
    if kind == "TIMESTAMPTZ" and value is not None:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return value


def test_sums_are_larger_than_64_bits(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    lines = [canonical_line(usage_row(serial, held_ns=2**63 - 1)) for serial in range(1, 5)]
    write_rows(database, lines, file)
    found = database.execute(f"SELECT sum(held_ns) FROM ({read_query([file])})")  # noqa: S608
    assert found == [(4 * (2**63 - 1),)]


def test_missing_columns_are_null_and_new_ones_stay(database: Database, tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write_query(database, "SELECT 1::BIGINT AS serial", old)
    write_query(database, "SELECT 2::BIGINT AS serial, 'x' AS pod, 7 AS colour", new)
    both = tmp_path / "both.parquet"
    write_query(database, f"{read_query([old, new])} ORDER BY serial", both)
    query = f"SELECT serial, pod, held_ns, colour FROM ({read_query([both])})"  # noqa: S608
    assert database.execute(query) == [(1, None, None, None), (2, "x", None, 7)]


def test_no_files_have_no_rows(database: Database) -> None:
    assert database.execute(read_query([])) == []


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("{'podgpu.archive': '2'}", "KEY has the format 2 .* use a newer podgpu"),
        ("{'podgpu.archive': ''}", "KEY is not an object of podgpu's archive"),
        ("{'other': '1'}", "KEY is not an object of podgpu's archive"),
    ],
)
def test_objects_of_others_are_refused_by_name(
    metadata: str, error: str, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    options = f"(FORMAT parquet, KV_METADATA {metadata})"
    database.execute(f"COPY (SELECT 1 AS serial) TO '{file}' {options}")
    with pytest.raises(PermanentError, match=error):
        read_metadata(database, {file: "KEY"})


def test_a_memory_limit_that_is_too_low_is_named(tmp_path: Path) -> None:
    with open_database(tmp_path, memory_mb=32) as database:
        database.execute("SET max_temp_directory_size = '1MB'")
        with pytest.raises(PermanentError, match="more than the limit of 32 MiB of memory"):
            database.execute("SELECT list(i::VARCHAR || repeat('x', 100)) FROM range(3000000) t(i)")


def test_a_path_with_a_pattern_is_refused() -> None:
    with pytest.raises(PermanentError, match=r"/tmp/\[a\], .* set TMPDIR to another folder"):
        read_query([Path("/tmp/[a]/x.parquet")])


def test_no_extension_is_loaded_from_elsewhere(database: Database) -> None:
    with pytest.raises(PermanentError):
        database.execute("SELECT * FROM read_parquet('s3://bucket/key')")
    with pytest.raises(PermanentError):
        database.execute("SELECT * FROM 'https://127.0.0.1:1/x.parquet'")
