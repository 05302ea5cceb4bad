"""Queries of the usage and the holdings in a span of time."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from pipeline.ledger.gpu_indexes import read_gpu_indexes
from pipeline.ledger.sample_mark import sample_maker
from pipeline.ledger.schema import (
    HOUR_NS,
    START_KEY,
    UNATTRIBUTED_ID,
    invalid_value_error,
    transaction,
)
from pipeline.model import PartialRef, StringPairs
from pipeline.model.ledger_usage import (
    ContainerIdentity,
    DeviceTotal,
    Gap,
    HourTotal,
    UsageRow,
    UsageWindow,
)

FIRST_FIGURES: Final = (
    "the first figures come within half a minute after podgpu's start, after two usage samples of "
    "a device and a commit (usage_interval, commit_interval). If there are none later, check that "
    "podgpu runs, and that its nvml source works and takes usage samples (options usage and "
    "processes)"
)
"""When an empty ledger gets its first usage: after a start, samples are ignored for up to ten
seconds, and by default samples and commits have intervals of five seconds."""

# In an hour without counted time, as of a GPU with MIG instances, no busy time is missing.
_USAGE: Final = f"""
SELECT h.device, h.container, SUM(h.held_ns), SUM(h.busy_ns), SUM(h.energy_mj),
    MAX(h.busy_ns IS NULL AND (h.container <> {UNATTRIBUTED_ID} OR h.held_ns <> 0 OR EXISTS (
        SELECT 1 FROM device_hours AS d
        WHERE d.hour = h.hour AND d.device = h.device AND d.accounted_ns <> 0
    ))),
    MAX(h.energy_mj IS NULL),
    SUM(CASE WHEN h.busy_ns IS NULL THEN h.held_ns ELSE 0 END)
FROM hours AS h WHERE h.hour >= ? AND h.hour < ? GROUP BY h.device, h.container
"""  # noqa: S608
_COUNTS: Final = """
SELECT device, container, COUNT(*) FROM holdings INDEXED BY holdings_by_end
WHERE {ends} AND start_ns < ? GROUP BY device, container
"""
_CONTAINERS: Final = (
    "SELECT id, namespace, pod, container, uid, owner_kind, owner_name, labels FROM containers "
    "WHERE id IN (SELECT value FROM json_each(?))"
)
_DEVICES: Final = "SELECT id, uuid, model, profile, gpu FROM devices"
_LATEST_NS: Final = 1 << 62
"""A time in the year 2116. SQLite stores numbers in 64 bits, so much later times do not fit."""

_TOTALS: Final = """
SELECT device, SUM(accounted_ns), SUM(gap_ns), SUM(busy_ns), SUM(energy_mj), {unknown}
FROM device_hours WHERE hour >= ? AND hour < ? GROUP BY device
"""
_HOURS: Final = """
SELECT d.hour, SUM(d.accounted_ns), {unknown}, ifnull(
    (SELECT SUM(h.held_ns) FROM hours AS h WHERE h.hour = d.hour AND h.container <> ?), 0
), SUM(d.busy_ns), SUM(d.energy_mj)
FROM device_hours AS d WHERE d.hour >= ? AND d.hour < ? GROUP BY d.hour ORDER BY d.hour
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
    AND (? IS NULL OR d.uuid IN (SELECT value FROM json_each(?)))
ORDER BY h.start_ns DESC, d.uuid, c.uid, c.namespace, c.pod, c.container LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class HoldingRecord:
    """A holding as stored in the ledger.

    Attributes:
        device: uuid of the device.
        container: the container that holds or uses the device.
        start_ns: start of the holding, in nanoseconds of Unix time.
        end_ns: end of the holding, in nanoseconds of Unix time; None if it has not ended.
        until_ns: the time up to which the holding is counted, in nanoseconds of Unix time.
        source: name of the source whose claim is valid; empty if the container only used the
            device.
        evidence: what the claim is based on, such as `kubelet_ids`; empty if there is no claim.
        counted_ns: the part of the holding's time that was counted.
        gap_ns: the part of the holding's time that was not counted.
        held_ns: held time.
        busy_ns: busy time; None if it was never known.
        energy_mj: energy in millijoules; None if it was never known.
        memory_peak_bytes: the largest memory; None if it was never known.
        memory_mean_bytes: the mean memory; None if it was never known.
        busy_mean_ppm: the part of the holding's time in which the container kept the device busy,
            in millionths; None if it was never known.
        busy_peak_ppm: the largest such part of an interval between two samples; None if it was
            never known.
        xids: (code, count) of XID errors during the holding, sorted by code.
        node: name of the node, in a list of several nodes.
        cluster: name of the cluster, in a list of several nodes.
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
    node: str = ""
    cluster: str = ""


def read_window(
    connection: sqlite3.Connection,
    start_ns: int,
    end_ns: int,
    price_changes: Sequence[int] = (),
) -> UsageWindow:
    """Return the usage in all hours that overlap a span of time.

    The result is consistent even if the sink writes at the same time. Its start and end are limited
    to the time for which there is data.

    Args:
        connection: connection from `open_readonly`; no transaction is open.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time, later than `start_ns`.
        price_changes: moments at which usage rows are split, in nanoseconds of Unix time: full
            hours, sorted.

    Raises:
        sqlite3.Error: the file cannot be read; see `pipeline.ledger.file_open.to_ledger_error`.
    """
    first, beyond = start_ns // HOUR_NS, -(-min(end_ns, _LATEST_NS) // HOUR_NS)
    start, end = first * HOUR_NS, beyond * HOUR_NS
    with transaction(connection, "BEGIN"), _as_database_error():
        maker = sample_maker(connection)
        node = connection.execute("SELECT value FROM meta WHERE key = 'node'").fetchone()
        first_ns, last = _recorded_span(connection)
        start = max(start, first_ns)
        end = max(min(end, last), start) if last else max(end, start)
        known = [_typed(row, "ntttt") for row in connection.execute(_DEVICES)]
        devices = {
            key: (uuid, f"{model} {profile}".strip()) for key, uuid, model, profile, _ in known
        }
        indexes = read_gpu_indexes(connection)
        gpus = {key: (profile, gpu, indexes.get(gpu)) for key, *_, profile, gpu in known}
        spent = _usage_of_spans(connection, devices, _spans(first, beyond, price_changes))
        totals_of = _TOTALS.format(unknown=_unknown(connection))
        totals = [
            DeviceTotal(
                *devices[device], accounted, gap, busy, energy, unknown, gpu, index, profile
            )
            for device, accounted, gap, busy, energy, unknown in (
                _typed(row, "nnnoon") for row in connection.execute(totals_of, (first, beyond))
            )
            for profile, gpu, index in (gpus[device],)
        ]
        gaps = tuple(
            [
                Gap(*_typed(row, "tnnt"))
                for row in connection.execute(_GAPS, (start, beyond * HOUR_NS))
            ]
        )
    totals.sort(key=lambda one: one.order)
    name = str(node[0]) if node else ""
    return UsageWindow(name, start, end, spent, tuple(totals), gaps, maker)


def read_hours(connection: sqlite3.Connection, start_ns: int, end_ns: int) -> tuple[HourTotal, ...]:
    """Return the total usage of each hour that overlaps a span of time, the oldest first.

    Args:
        connection: connection from `open_readonly`; no transaction is open.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time, later than `start_ns`.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    first, beyond = start_ns // HOUR_NS, -(-min(end_ns, _LATEST_NS) // HOUR_NS)
    with transaction(connection, "BEGIN"), _as_database_error():
        query = _HOURS.format(unknown=_unknown(connection))
        rows = connection.execute(query, (UNATTRIBUTED_ID, first, beyond))
        return tuple(
            [
                HourTotal(hour * HOUR_NS, *rest)
                for hour, *rest in (_typed(row, "nnnnoo") for row in rows)
            ]
        )


def _unknown(connection: sqlite3.Connection) -> str:
    """Return the expression for the time with unknown holders, which version 1 does not store."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return "0" if version < 2 else "SUM(ifnull(unknown_ns, 0))"


def read_holdings(
    connection: sqlite3.Connection,
    start_ns: int,
    end_ns: int,
    limit: int = 1000,
    devices: Iterable[str] | None = None,
) -> tuple[HoldingRecord, ...]:
    """Return the holdings that overlap a span of time, the latest first.

    Args:
        connection: connection from `open_readonly`.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time, later than `start_ns`.
        limit: maximum number of holdings.
        devices: uuids of the devices; None for all.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with _as_database_error():
        uuids = None if devices is None else json.dumps(list(devices))
        span = start_ns, min(end_ns, _LATEST_NS)
        rows = connection.execute(_HOLDINGS, (*span, uuids, uuids, limit))
        return tuple([_holding_record(row) for row in rows])


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the ledger has its tables, but no usage of any device.

    Args:
        connection: connection from `open_readonly`.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    found = connection.execute("SELECT EXISTS (SELECT 1 FROM device_hours)").fetchone()
    return not found[0]


@contextmanager
def _as_database_error() -> Iterator[None]:
    """Convert errors for values that podgpu does not write to a database error.

    Raises:
        sqlite3.DatabaseError: a value in the file is invalid.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise invalid_value_error(repr(error)) from error


def _typed(row: Sequence[Any], kinds: str) -> Sequence[Any]:
    """Return a row after checking the types of its values, which SQLite does not enforce.

    Args:
        row: the row as it was read.
        kinds: one letter for each value: `t` text, `n` integer, `o` integer or NULL.

    Raises:
        TypeError: a value has another type.
    """
    for value, kind in zip(row, kinds, strict=True):
        if not (isinstance(value, _TYPES[kind]) or (kind == "o" and value is None)):
            raise TypeError(f"a value of type {type(value).__name__}")
    return row


_TYPES: Final = MappingProxyType({"t": str, "n": int, "o": int})


def _recorded_span(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the start of the counted time and the time of the last sample; 0 for a missing one.

    The start is known to the nanosecond while the ledger has its first hour, otherwise to the hour.
    """
    (first,) = connection.execute("SELECT MIN(hour) FROM device_hours").fetchone()
    (last,) = connection.execute("SELECT MAX(at_ns) FROM state").fetchone()
    first, last = _typed((first, last), "oo")
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (START_KEY,)).fetchone()
    hour_ns, start_ns = (first or 0) * HOUR_NS, int(row[0]) if row else 0
    return start_ns if start_ns // HOUR_NS == first else hour_ns, last or 0


def _holding_record(row: tuple[Any, ...]) -> HoldingRecord:
    device, namespace, pod, container, uid, kind, owner, labels, *rest = _typed(
        row, "ttttttttnonttnnnoooooot"
    )
    container_identity = ContainerIdentity(
        PartialRef(namespace, pod, container, uid), kind, owner, _pairs(labels)
    )
    rest[-1] = tuple(sorted((int(code), count) for code, count in json.loads(rest[-1]).items()))
    return HoldingRecord(device, container_identity, *rest)


def _spans(first: int, beyond: int, price_changes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the spans of equal prices, in hours."""
    inside = [hour for hour in (ns // HOUR_NS for ns in price_changes) if first < hour < beyond]
    return list(pairwise([first, *inside, beyond]))


def _usage_of_spans(
    connection: sqlite3.Connection,
    devices: dict[int, tuple[str, str]],
    spans: Sequence[tuple[int, int]],
) -> tuple[UsageRow, ...]:
    """Return the usage rows of each span. The holdings are in the first row of a container."""
    rows: list[UsageRow] = []
    counted: set[tuple[str, ContainerIdentity | None]] = set()
    for first, beyond in spans:
        for one in _usage_rows(connection, devices, (first, beyond), (spans[0][0], spans[-1][1])):
            row = one
            if len(spans) > 1:
                known = (one.device, one.container) in counted
                counted.add((one.device, one.container))
                row = replace(one, since_ns=first * HOUR_NS, holdings=0 if known else one.holdings)
            rows.append(row)
    return tuple(rows)


def _usage_rows(
    connection: sqlite3.Connection,
    devices: dict[int, tuple[str, str]],
    hours: tuple[int, int],
    whole: tuple[int, int],
) -> Iterator[UsageRow]:
    rows = connection.execute(_USAGE, hours).fetchall()
    start, end = (hour * HOUR_NS for hour in whole)
    counts: dict[tuple[int, int], int] = {}
    for ends, parameters in (("end_ns > ?", (start, end)), ("end_ns IS NULL", (end,))):
        for device, container, count in connection.execute(_COUNTS.format(ends=ends), parameters):
            counts[device, container] = counts.get((device, container), 0) + count
    containers = _containers_by_id(
        connection, {container for _, container, *_ in rows} - {UNATTRIBUTED_ID}
    )
    subjects = {key: one.subject for key, one in containers.items()}
    unnamed = PartialRef()
    rows.sort(
        key=lambda row: (
            devices[row[0]][0],
            row[1] == UNATTRIBUTED_ID,
            subjects.get(row[1], unnamed),
        )
    )
    for device, container, held, busy, energy, no_busy, no_energy, held_without_busy in (
        _typed(row, "nnnoonnn") for row in rows
    ):
        yield UsageRow(
            devices[device][0],
            containers.get(container),
            held,
            busy,
            energy,
            counts.get((device, container), 0),
            busy is not None and bool(no_busy),
            energy is not None and bool(no_energy),
            0 if busy is None else held_without_busy,
        )


def _containers_by_id(
    connection: sqlite3.Connection, ids: set[int]
) -> dict[int, ContainerIdentity]:
    rows = connection.execute(_CONTAINERS, (json.dumps(sorted(ids)),))
    return {
        key: ContainerIdentity(PartialRef(*name), kind, owner, _pairs(labels))
        for key, *name, kind, owner, labels in (_typed(row, "nttttttt") for row in rows)
    }


@lru_cache(maxsize=4096)
def _pairs(labels: str) -> StringPairs:
    return tuple(sorted((str(name), str(value)) for name, value in json.loads(labels).items()))
