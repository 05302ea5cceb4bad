"""Checks that objects have the columns and the rows that podgpu writes.

A node, or a program with its credentials, can write any file below the node's name. Columns of
other types would change the amounts of all rows that are read together with them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipeline.archive.database import Database, literal, path_list
from pipeline.archive.row_columns import COLUMNS
from pipeline.base.errors import PermanentError

_FILE_NAME: Final = "filename"
"""A column that DuckDB adds to rows, which an object cannot have."""

_SQL_NAMES: Final = {"TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE"}
_EXPECTED: Final = ", ".join(
    f"({literal(name)}, {literal(_SQL_NAMES.get(kind, kind))})"
    for name, kind in [*((c.name, c.type) for c in COLUMNS), (_FILE_NAME, "")]
)


def check_columns(database: Database, files: Mapping[Path, str]) -> None:
    """Check that files have no column of another type. A missing column is no error.

    Args:
        database: a database.
        files: the key of the object by file, for errors.

    Raises:
        PermanentError: a file has a column of another type, or is damaged.
    """
    if not files:
        return
    found = database.execute(
        "SELECT file_name, name, duckdb_type "  # noqa: S608 - constants and paths
        f"FROM parquet_schema({path_list(list(files))}) "
        f"JOIN (VALUES {_EXPECTED}) AS expected(known, expected_type) ON lower(name) = known "
        "WHERE duckdb_type IS DISTINCT FROM expected_type LIMIT 1"
    )
    for file, column, kind in found:
        raise PermanentError(
            f"{files[Path(file)]} is not podgpu's: its column {column} has the type {kind}; "
            "move it to another place"
        )


def _are_known(*columns: str) -> str:
    return " AND ".join(f"{column} IS NOT NULL" for column in columns)


_DEVICE: Final = _are_known("device", "gpu", "model", "profile")
_POD: Final = _are_known("namespace", "pod", "container", "pod_uid")
_HOUR: Final = "hour IS NOT NULL AND date_trunc('hour', hour) = hour AND CAST(hour AS DATE) = day"
_END: Final = "end_ns // 86_400_000_000_000 = day - DATE '1970-01-01'"
_VALID: Final = {
    "usage": f"{_HOUR} AND {_DEVICE} AND {_are_known('held_ns')} "
    f"AND (({_POD}) OR coalesce(namespace, pod, container, pod_uid) IS NULL)",
    "device": f"{_HOUR} AND {_DEVICE} AND {_are_known('accounted_ns', 'gap_ns')}",
    "container": f"{_POD} AND {_are_known('owner_kind', 'owner_name', 'labels_cut')} "
    "AND CASE WHEN json_valid(labels) THEN json_type(labels) = 'OBJECT' ELSE false END",
    "holding": f"{_are_known('holding')} AND (end_ns IS NULL OR ({_END} AND {_DEVICE} AND {_POD} "
    f"AND {_are_known('start_ns', 'held_ns', 'counted_ns', 'gap_ns', 'source', 'evidence')} "
    r"""AND coalesce(regexp_full_match(xids, '\{("\d+": ?\d+(, ?)?)*\}'), false)))""",
    "gap": f"{_are_known('gap')} AND (end_ns IS NULL OR ({_END} AND {_DEVICE} "
    f"AND {_are_known('start_ns', 'reason')}))",
}

IS_VALID: Final = (
    "CASE row "
    + " ".join(f"WHEN {literal(kind)} THEN {condition}" for kind, condition in _VALID.items())
    + " ELSE row IS NOT NULL END"
)
"""SQL condition of a row that podgpu can have written. Kinds of a later podgpu are valid."""
