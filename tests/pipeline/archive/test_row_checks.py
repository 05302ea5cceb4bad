"""Files that podgpu does not write are refused by name, by reports and by the compaction."""

from pathlib import Path

import pytest

from pipeline.archive.compaction import compact
from pipeline.archive.database import Database
from pipeline.archive.object_merge import ParquetMerge
from pipeline.archive.object_selection import fetch_objects
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.raw_object import put_rows
from pipeline.archive.row_columns import Row
from pipeline.archive.row_reading import create_rows
from pipeline.base.errors import PermanentError
from tests.pipeline.archive.rows import LEDGER, usage_row

pytestmark = pytest.mark.slow
_POD = {"namespace": "ml", "pod": "a", "container": "main", "pod_uid": "u-a"}
_PLACE = {"cluster": "prod", "node": "node-1", "ledger": LEDGER, "day": "2026-11-30"}
_GPU = {"device": "GPU-1", "gpu": "GPU-1", "model": "NVIDIA H200", "profile": ""}
_NOON = 1_796_040_000_000_000_000
ROWS: tuple[Row, ...] = (
    usage_row(1),
    usage_row(2, **_POD),
    {
        **(_PLACE | _GPU),
        "serial": 3,
        "row": "device",
        "hour": "2026-11-30T12:00:00Z",
        "accounted_ns": 1,
        "gap_ns": 0,
    },
    {
        **(_PLACE | _POD),
        "serial": 4,
        "row": "container",
        "owner_kind": "",
        "owner_name": "",
        "labels": '{"team": "red"}',
        "labels_cut": 0,
    },
    {
        **(_PLACE | _GPU | _POD),
        "serial": 5,
        "row": "holding",
        "holding": "h",
        "start_ns": _NOON,
        "end_ns": _NOON + 1,
        "source": "",
        "evidence": "",
        "held_ns": 1,
        "counted_ns": 1,
        "gap_ns": 0,
        "xids": '{"31": 2, "79": 1}',
    },
    {
        **(_PLACE | _GPU),
        "serial": 6,
        "row": "gap",
        "gap": "g",
        "start_ns": _NOON,
        "end_ns": _NOON + 1,
        "reason": "down",
    },
    {**_PLACE, "serial": 7, "row": "holding", "holding": "withdrawn"},
    {**_PLACE, "serial": 8, "row": "gap", "gap": "withdrawn"},
    {**_PLACE, "serial": 9, "row": "of a later podgpu"},
)
"""A row of each kind, with all columns that it must have."""


def rewritten(query: str, store: ObjectStore, database: Database, folder: Path) -> str:
    """Put `ROWS`, and replace the object by the rows of a query of its rows, `found`."""
    key = str(put_rows(store, database, ROWS, folder))
    file = Path(store.location) / key
    copy = folder / "found.parquet"
    copy.write_bytes(file.read_bytes())
    database.execute(
        f"COPY (WITH found AS (FROM read_parquet('{copy}')) {query}) TO '{file}' "
        "(FORMAT parquet, KV_METADATA {'podgpu.archive': '1'})"
    )
    copy.unlink()
    return key


def check_refused(key: str, error: str, store: ObjectStore, database: Database, work: Path) -> None:
    (copies := work / "copies").mkdir()
    with pytest.raises(PermanentError, match=f"{key} {error}"):
        create_rows(database, fetch_objects(store, database, copies))
    done = compact(store, ParquetMerge(database), work, closed=lambda _: True)
    assert [key in refused for refused in done.refused.values()] == [True]
    assert list(store.keys("v1")) == [key]


def test_rows_of_podgpu_are_accepted(store: ObjectStore, database: Database, work: Path) -> None:
    rewritten("FROM found", store, database, work)
    create_rows(database, fetch_objects(store, database, work))
    assert database.execute("SELECT count(*) FROM archive_rows") == [(len(ROWS),)]


@pytest.mark.parametrize(
    ("changed", "column"),
    [
        ("held_ns::DOUBLE AS held_ns", "held_ns"),
        ("'nan'::DOUBLE AS busy_ns", "busy_ns"),
        ("1::HUGEINT AS energy_mj", "energy_mj"),
        ("'x' AS accounted_ns", "accounted_ns"),
        ("day::VARCHAR AS day", "day"),
        ("hour::TIMESTAMP AS hour", "hour"),
        ("{'a': 1} AS labels", "labels"),
    ],
)
def test_columns_of_other_types_are_refused(
    changed: str, column: str, store: ObjectStore, database: Database, work: Path
) -> None:
    """Read together with others, they would change the type of all amounts."""
    query = f"SELECT * REPLACE ({changed}) FROM found"  # noqa: S608
    key = rewritten(query, store, database, work)
    check_refused(key, f"is not podgpu's: its column {column}", store, database, work)


def test_a_column_that_hides_the_name_of_the_file_is_refused(
    store: ObjectStore, database: Database, work: Path
) -> None:
    key = rewritten("SELECT *, '' AS FileName FROM found", store, database, work)
    check_refused(key, "is not podgpu's: its column FileName", store, database, work)


def test_a_row_that_is_there_twice_is_refused(
    store: ObjectStore, database: Database, work: Path
) -> None:
    query = "FROM found UNION ALL FROM found WHERE serial = 1"
    key = rewritten(query, store, database, work)
    check_refused(key, "has other rows than its name states", store, database, work)


@pytest.mark.parametrize(
    ("serial", "column", "value"),
    [
        *[(1, name, "NULL") for name in ("row", "hour", "held_ns", "device", "gpu", "model")],
        (1, "hour", "hour + INTERVAL 1 DAY"),
        (1, "hour", "hour + INTERVAL 1 SECOND"),
        (1, "hour", "'infinity'"),
        *[(2, name, "NULL") for name in _POD],
        *[(3, name, "NULL") for name in ("hour", "accounted_ns", "gap_ns", "profile")],
        *[(4, name, "NULL") for name in (*_POD, "owner_kind", "labels", "labels_cut")],
        *[(4, "labels", f"'{text}'") for text in ("[]", "{", "1")],
        *[(5, name, "NULL") for name in ("holding", "start_ns", "held_ns", "evidence", "xids")],
        *[(5, "xids", f"'{text}'") for text in ("[]", '{"a": 1}', "{}}")],
        (5, "end_ns", str(_NOON + 86_400 * 10**9)),
        *[(6, name, "NULL") for name in ("gap", "start_ns", "reason", "device")],
    ],
)
def test_rows_that_podgpu_does_not_write_are_refused(  # noqa: PLR0917 - with fixtures
    serial: int, column: str, value: str, store: ObjectStore, database: Database, work: Path
) -> None:
    query = (
        f"SELECT * REPLACE (CASE WHEN serial = {serial} THEN {value} ELSE {column} END "  # noqa: S608
        f"AS {column}) FROM found"
    )
    key = rewritten(query, store, database, work)
    error = f"has a row that podgpu does not write, with the serial {serial}"
    check_refused(key, error, store, database, work)
