"""The columns of an archive's rows, and the canonical form of a row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, TypeAlias

FORMAT: Final = 1
"""Number of the format, in each object's metadata. Readers refuse objects with a higher number.

New columns and new kinds of rows do not raise it, because readers ignore what they do not know.
"""

Kind: TypeAlias = Literal["usage", "device", "container", "holding", "gap"]
KINDS: Final[tuple[Kind, ...]] = ("usage", "device", "container", "holding", "gap")
"""Values of the column `row`."""

Row: TypeAlias = Mapping[str, str | int | None]
"""Values by column. A missing column is NULL. Dates and hours are texts; see `hour_text`."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BITS: Final = {"INTEGER": 31, "BIGINT": 63}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the archive's rows.

    Attributes:
        name: its name.
        type: its SQL type in DuckDB: VARCHAR, INTEGER, BIGINT, DATE, or TIMESTAMPTZ.
        kinds: the kinds of rows that can have a value.
        meaning: what a value means, for the documentation.
    """

    name: str
    type: str
    kinds: tuple[Kind, ...]
    meaning: str


_USAGE: Final[tuple[Kind, ...]] = ("usage", "holding")
_DEVICE: Final[tuple[Kind, ...]] = ("usage", "device", "holding", "gap")
_POD: Final[tuple[Kind, ...]] = ("usage", "container", "holding")
_SPAN: Final[tuple[Kind, ...]] = ("holding", "gap")

COLUMNS: Final[tuple[Column, ...]] = (
    Column("cluster", "VARCHAR", KINDS, "name of the cluster, as `podgpu archive` got it"),
    Column("node", "VARCHAR", KINDS, "name of the node"),
    Column("ledger", "VARCHAR", KINDS, "random id of the ledger file, 16 hexadecimal digits"),
    Column("serial", "BIGINT", KINDS, "number of the row in its ledger: 1, 2, 3, without holes"),
    Column("row", "VARCHAR", KINDS, f"the kind of row: {', '.join(KINDS)}"),
    Column(
        "day",
        "DATE",
        KINDS,
        "UTC day of the hour; of a holding or a gap, the day of its end; of a container, the day "
        "that the row describes",
    ),
    Column("hour", "TIMESTAMPTZ", ("usage", "device"), "start of the hour, UTC"),
    Column("device", "VARCHAR", _DEVICE, "UUID of the device"),
    Column("gpu", "VARCHAR", _DEVICE, "UUID of the physical GPU"),
    Column("gpu_index", "INTEGER", _DEVICE, "index of the physical GPU; NULL if unknown"),
    Column("model", "VARCHAR", _DEVICE, "model of the physical GPU"),
    Column("profile", "VARCHAR", _DEVICE, "profile of a MIG instance, else empty"),
    Column("namespace", "VARCHAR", _POD, "namespace of the pod; NULL in unattributed usage"),
    Column("pod", "VARCHAR", _POD, "name of the pod; NULL in unattributed usage"),
    Column("container", "VARCHAR", _POD, "name of the container; NULL in unattributed usage"),
    Column("pod_uid", "VARCHAR", _POD, "UID of the pod; NULL in unattributed usage"),
    Column(
        "held_ns",
        "BIGINT",
        _USAGE,
        "held time; in unattributed usage, the time that no container held",
    ),
    Column("busy_ns", "BIGINT", ("usage", "device", "holding"), "busy time; NULL if unknown"),
    Column("energy_mj", "BIGINT", ("usage", "device", "holding"), "energy; NULL if unknown"),
    Column(
        "contested_ns",
        "BIGINT",
        _USAGE,
        "how much of the busy time other users may have had; NULL if unknown for a part of it, and "
        "in unattributed usage",
    ),
    Column(
        "switching_ns",
        "BIGINT",
        _USAGE,
        "how much of the busy time the device may have switched between users; NULL as before",
    ),
    Column("accounted_ns", "BIGINT", ("device",), "time with an account"),
    Column("gap_ns", "BIGINT", ("device", "holding"), "time without an account"),
    Column(
        "unknown_ns",
        "BIGINT",
        ("device",),
        "the part of the unattributed held time that is not known to be free; NULL if unknown",
    ),
    Column("owner_kind", "VARCHAR", ("container",), "kind of the workload, else empty"),
    Column("owner_name", "VARCHAR", ("container",), "name of the workload, else empty"),
    Column("labels", "VARCHAR", ("container",), "labels of the pod, a JSON object"),
    Column("labels_cut", "INTEGER", ("container",), "number of labels that were left out"),
    Column("holding", "VARCHAR", ("holding",), "id of the holding"),
    Column("gap", "VARCHAR", ("gap",), "id of the gap"),
    Column("start_ns", "BIGINT", _SPAN, "start, as nanoseconds of Unix time"),
    Column(
        "end_ns",
        "BIGINT",
        _SPAN,
        "end, as nanoseconds of Unix time; NULL: the holding or gap is withdrawn",
    ),
    Column("source", "VARCHAR", ("holding",), "source of the valid claim"),
    Column("evidence", "VARCHAR", ("holding",), "evidence of the valid claim"),
    Column("counted_ns", "BIGINT", ("holding",), "time for which usage was counted"),
    Column("memory_peak_bytes", "BIGINT", ("holding",), "highest memory; NULL if unknown"),
    Column("memory_mean_bytes", "BIGINT", ("holding",), "mean memory; NULL if unknown"),
    Column("busy_mean_ppm", "BIGINT", ("holding",), "mean busy part, in millionths"),
    Column("busy_peak_ppm", "BIGINT", ("holding",), "highest busy part, in millionths"),
    Column("xids", "VARCHAR", ("holding",), "XID errors, a JSON object of counts by code"),
    Column("reason", "VARCHAR", ("gap",), "`down` or `blind`"),
    Column("sample_data", "VARCHAR", KINDS, "what made the data up; NULL: it was measured"),
)
"""The columns, in their order in a file."""

_ORDER: Final = {column.name: column for column in COLUMNS}


def canonical_line(row: Row) -> bytes:
    r"""Return a row as one line of JSON: columns in their order, without NULLs; no line feed.

    Raises:
        ValueError: a column is unknown, or a value has a wrong type or is out of range.
    """
    if unknown := row.keys() - _ORDER.keys():
        raise ValueError(f"a row of the archive has no column {min(unknown)!r}")
    found = {name: row[name] for name in _ORDER if row.get(name) is not None}
    for name, value in found.items():
        bits = _BITS.get(_ORDER[name].type)
        valid = (
            isinstance(value, str)
            if bits is None
            else type(value) is int and -(1 << bits) <= value < 1 << bits
        )
        if not valid:
            raise ValueError(f"{value!r} is no {_ORDER[name].type} (column {name})")
    # orjson would be faster, but its output for the same row may change with its version.
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def hour_text(hour: int) -> str:
    """Return the text of an hour for a row. Hours are numbered from the Unix epoch."""
    return f"{_EPOCH + timedelta(hours=hour):%Y-%m-%dT%H:00:00Z}"


def day_of_hour(hour: int) -> date:
    """Return the UTC day of an hour. Hours are numbered from the Unix epoch."""
    return (_EPOCH + timedelta(hours=hour)).date()


def day_of_moment(nanoseconds: int) -> date:
    """Return the UTC day of a moment of Unix time."""
    return day_of_hour(nanoseconds // 3_600_000_000_000)
