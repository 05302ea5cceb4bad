"""What the ledger tells of a span of time."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from pipeline.ledger.schema import HOUR_NS, UNATTRIBUTED_ID, invalid_value_error
from pipeline.model import PartialRef, StringPairs
from pipeline.model.usage_window import ContainerIdentity, DeviceTotal, Gap, UsageRow, UsageWindow

_SPENT: Final = """
SELECT device, container, SUM(held_ns), SUM(busy_ns), SUM(energy_mj)
FROM hours WHERE hour >= ? AND hour < ? GROUP BY device, container
"""
_COUNTS: Final = """
SELECT device, container, COUNT(*) FROM holdings INDEXED BY holdings_by_end
WHERE {ends} AND start_ns < ? GROUP BY device, container
"""
_CONTAINERS: Final = (
    "SELECT id, namespace, pod, container, uid, owner_kind, owner_name, labels FROM containers"
)
_SOME_CONTAINERS: Final = (
    "SELECT id, namespace, pod, container, uid, owner_kind, owner_name, labels FROM containers "
    "WHERE id IN (SELECT value FROM json_each(?))"
)
_LATEST_NS: Final = 1 << 62
"""In the year 2116: SQLite has 64 bits for a number, and later moments don't fit."""

_FEW: Final = 10_000
"""Up to how many containers are looked up one by one; for more of them all are read."""

_TOTALS: Final = """
SELECT device, SUM(accounted_ns), SUM(gap_ns), SUM(busy_ns), SUM(energy_mj), {unknown}
FROM device_hours WHERE hour >= ? AND hour < ? GROUP BY device
"""
_GAPS: Final = """
SELECT d.uuid, g.start_ns, g.end_ns, g.reason FROM gaps AS g JOIN devices AS d ON d.id = g.device
WHERE g.end_ns > ? AND g.start_ns < ? ORDER BY g.start_ns, d.uuid
"""
_HOLDINGS: Final = """
SELECT d.uuid, c.namespace, c.pod, c.container, c.uid, c.owner_kind, c.owner_name, c.labels,
       h.start_ns, h.end_ns, h.until_ns, h.source, h.evidence, h.counted_ns, h.gap_ns, h.held_ns,
       h.busy_ns, h.energy_mj, h.memory_peak_bytes, h.memory_mean_bytes, h.busy_mean_ppm,
       h.busy_peak_ppm, h.xids
FROM holdings AS h JOIN devices AS d ON d.id = h.device JOIN containers AS c ON c.id = h.container
WHERE (h.end_ns IS NULL OR h.end_ns > ?) AND h.start_ns < ?
ORDER BY h.start_ns DESC, d.uuid, c.uid, c.namespace, c.pod, c.container LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class HoldingRecord:
    """A holding as it stands in the ledger.

    Attributes:
        device: uuid.
        container: the container.
        start_ns: in nanoseconds of Unix time.
        end_ns: likewise; None while it goes on.
        until_ns: likewise, the moment up to which it is counted.
        source: name of the source by whose word the device was held; empty where none said so.
        evidence: what that word rests on, such as `kubelet_ids`; empty where there is none.
        counted_ns: of its time, what there is an account of.
        gap_ns: of its time, what there is none of.
        held_ns: held time.
        busy_ns: busy time; None where it was never known.
        energy_mj: energy in millijoules; None where it was never known.
        memory_peak_bytes: the most memory; None where it was never known.
        memory_mean_bytes: the mean; None where it was never known.
        busy_mean_ppm: the part of its time in which it kept the device busy, in millionths.
        busy_peak_ppm: the largest such part of an interval between two looks.
        xids: (code, count) of XID errors meanwhile, sorted by code.
    """

    device: str
    container: ContainerIdentity
    start_ns: int
    end_ns: int | None
    until_ns: int
    source: str
    evidence: str
    counted_ns: int
    gap_ns: int
    held_ns: int
    busy_ns: int | None
    energy_mj: int | None
    memory_peak_bytes: int | None
    memory_mean_bytes: int | None
    busy_mean_ppm: int | None
    busy_peak_ppm: int | None
    xids: tuple[tuple[int, int], ...]


def read_window(connection: sqlite3.Connection, start_ns: int, end_ns: int) -> UsageWindow:
    """Return what was used in a span of time, of whole hours that cover what was asked for.

    What stands there is of one moment, though the sink writes meanwhile.

    Args:
        connection: of `open_readonly`, in no transaction.
        start_ns: in nanoseconds of Unix time.
        end_ns: likewise, later.

    Raises:
        sqlite3.Error: it can't be read; see `pipeline.ledger.file_open.fault`.
    """
    first, beyond = start_ns // HOUR_NS, -(-min(end_ns, _LATEST_NS) // HOUR_NS)
    start, end = first * HOUR_NS, beyond * HOUR_NS
    connection.execute("BEGIN")
    with _ended(connection), _as_database_error():
        node = connection.execute("SELECT value FROM meta WHERE key = 'node'").fetchone()
        known, last = _known(connection)
        start = max(start, known)
        end = max(min(end, last), start) if last else max(end, start)
        devices = {
            key: (uuid, f"{model} {profile}".strip())
            for key, uuid, model, profile in (
                _typed(row, "nttt")
                for row in connection.execute("SELECT id, uuid, model, profile FROM devices")
            )
        }
        spent = tuple(_usage_rows(connection, devices, first, beyond))
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        totals_of = _TOTALS.format(unknown="0" if version < 2 else "SUM(ifnull(unknown_ns, 0))")
        totals = [
            DeviceTotal(*devices[device], *rest)
            for device, *rest in (
                _typed(row, "nnnoon") for row in connection.execute(totals_of, (first, beyond))
            )
        ]
        gaps = tuple(
            [
                Gap(*_typed(row, "tnnt"))
                for row in connection.execute(_GAPS, (start, beyond * HOUR_NS))
            ]
        )
    totals.sort(key=lambda one: one.device)
    return UsageWindow(str(node[0]) if node else "", start, end, spent, tuple(totals), gaps)


def read_holdings(
    connection: sqlite3.Connection, start_ns: int, end_ns: int, limit: int = 1000
) -> tuple[HoldingRecord, ...]:
    """Return the holdings that lie in a span of time or reach into it, the latest first.

    Args:
        connection: of `open_readonly`.
        start_ns: in nanoseconds of Unix time.
        end_ns: likewise, later.
        limit: how many at most.

    Raises:
        sqlite3.Error: it can't be read.
    """
    with _as_database_error():
        rows = connection.execute(_HOLDINGS, (start_ns, min(end_ns, _LATEST_NS), limit))
        return tuple([_holding_record(row) for row in rows])


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether it has no account of any device.

    Args:
        connection: of `open_readonly`.

    Raises:
        sqlite3.Error: it can't be read.
    """
    found = connection.execute("SELECT EXISTS (SELECT 1 FROM device_hours)").fetchone()
    return not found[0]


@contextmanager
def _ended(connection: sqlite3.Connection) -> Iterator[None]:
    """End a transaction of which nothing stays, unless SQLite has done so."""
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def _as_database_error() -> Iterator[None]:
    """Let what nobody can read, since others have written it, be the file's fault.

    Raises:
        sqlite3.DatabaseError: it is.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise invalid_value_error(repr(error)) from error


def _typed(row: Sequence[Any], kinds: str) -> Sequence[Any]:
    """Return a row whose values are of these types: SQLite stores a value of any type anywhere.

    Args:
        row: as it was read.
        kinds: a letter for each value: `t` text, `n` a whole number, `o` one or NULL.

    Raises:
        TypeError: a value is of another type.
    """
    for value, kind in zip(row, kinds, strict=True):
        if not (isinstance(value, _TYPES[kind]) or (kind == "o" and value is None)):
            raise TypeError(f"a value of the type {type(value).__name__}")
    return row


_TYPES: Final = MappingProxyType({"t": str, "n": int, "o": int})


def _known(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return when the first hour begins, and when the last look was; 0 where there is none."""
    (first,) = connection.execute("SELECT MIN(hour) FROM device_hours").fetchone()
    (last,) = connection.execute("SELECT MAX(at_ns) FROM state").fetchone()
    first, last = _typed((first, last), "oo")
    return (first or 0) * HOUR_NS, last or 0


def _holding_record(row: tuple[Any, ...]) -> HoldingRecord:
    device, namespace, pod, container, uid, kind, owner, labels, *rest = _typed(
        row, "ttttttttnonttnnnoooooot"
    )
    whose = ContainerIdentity(
        PartialRef(namespace, pod, container, uid), kind, owner, _pairs(labels)
    )
    rest[-1] = tuple(sorted((int(code), count) for code, count in json.loads(rest[-1]).items()))
    return HoldingRecord(device, whose, *rest)


def _usage_rows(
    connection: sqlite3.Connection, devices: dict[int, tuple[str, str]], first: int, beyond: int
) -> Iterator[UsageRow]:
    rows = connection.execute(_SPENT, (first, beyond)).fetchall()
    start, end = first * HOUR_NS, beyond * HOUR_NS
    counts: dict[tuple[int, int], int] = {}
    for ends, given in (("end_ns > ?", (start, end)), ("end_ns IS NULL", (end,))):
        for device, container, count in connection.execute(_COUNTS.format(ends=ends), given):
            counts[device, container] = counts.get((device, container), 0) + count
    those = _containers_by_id(
        connection, {container for _, container, *_ in rows} - {UNATTRIBUTED_ID}
    )
    ordered = sorted(
        rows,
        key=lambda row: (devices[row[0]][0], row[1] == UNATTRIBUTED_ID, *_name(those.get(row[1]))),
    )
    for device, container, held, busy, energy in (_typed(row, "nnnoo") for row in ordered):
        yield UsageRow(
            devices[device][0],
            those.get(container),
            held,
            busy,
            energy,
            counts.get((device, container), 0),
        )


def _containers_by_id(
    connection: sqlite3.Connection, wanted: set[int]
) -> dict[int, ContainerIdentity]:
    """Return containers by their numbers."""
    few = len(wanted) <= _FEW
    query = _SOME_CONTAINERS if few else _CONTAINERS
    given = (json.dumps(sorted(wanted)),) if few else ()
    return {
        key: ContainerIdentity(PartialRef(*name), kind, owner, _pairs(labels))
        for key, *name, kind, owner, labels in (
            _typed(row, "nttttttt") for row in connection.execute(query, given)
        )
        if few or key in wanted
    }


def _name(attribution: ContainerIdentity | None) -> tuple[str, ...]:
    if attribution is None:
        return ()
    subject = attribution.subject
    return subject.namespace, subject.pod, subject.container, subject.uid


@lru_cache(maxsize=4096)
def _pairs(labels: str) -> StringPairs:
    return tuple(sorted((str(name), str(value)) for name, value in json.loads(labels).items()))
