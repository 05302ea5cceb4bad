"""Queries of the usage and the holdings in a span of time."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pipeline.ledger.gpu_indexes import read_gpu_indexes
from pipeline.ledger.sample_mark import sample_maker
from pipeline.ledger.schema import (
    HOUR_NS,
    START_KEY,
    UNATTRIBUTED_ID,
    transaction,
)
from pipeline.ledger.stored_values import as_database_error, pairs, typed
from pipeline.ledger.usage_queries import tables_version, unknown_sum, usage_of_spans
from pipeline.model import PartialRef
from pipeline.model.ledger_usage import (
    ContainerIdentity,
    DeviceTotal,
    Gap,
    HourTotal,
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
       h.busy_peak_ppm, h.xids, {contest}
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
        contested_ns: see `ContainerUsage`; None if it is unknown for a part of the busy time.
        switching_ns: the same.
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
    contested_ns: int | None = None
    switching_ns: int | None = None
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
    with transaction(connection, "BEGIN"), as_database_error():
        maker = sample_maker(connection)
        node = connection.execute("SELECT value FROM meta WHERE key = 'node'").fetchone()
        first_ns, last = _recorded_span(connection)
        start = max(start, first_ns)
        end = max(min(end, last), start) if last else max(end, start)
        known = [typed(row, "ntttt") for row in connection.execute(_DEVICES)]
        devices = {
            key: (uuid, f"{model} {profile}".strip()) for key, uuid, model, profile, _ in known
        }
        indexes = read_gpu_indexes(connection)
        gpus = {key: (profile, gpu, indexes.get(gpu)) for key, *_, profile, gpu in known}
        spent = usage_of_spans(connection, devices, (first, beyond), price_changes)
        totals_of = _TOTALS.format(unknown=unknown_sum(connection))
        totals = [
            DeviceTotal(
                *devices[device], accounted, gap, busy, energy, unknown, gpu, index, profile
            )
            for device, accounted, gap, busy, energy, unknown in (
                typed(row, "nnnoon") for row in connection.execute(totals_of, (first, beyond))
            )
            for profile, gpu, index in (gpus[device],)
        ]
        gaps = tuple(
            [
                Gap(*typed(row, "tnnt"))
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
    with transaction(connection, "BEGIN"), as_database_error():
        query = _HOURS.format(unknown=unknown_sum(connection))
        rows = connection.execute(query, (UNATTRIBUTED_ID, first, beyond))
        return tuple(
            [
                HourTotal(hour * HOUR_NS, *rest)
                for hour, *rest in (typed(row, "nnnnoo") for row in rows)
            ]
        )


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
    with as_database_error():
        uuids = None if devices is None else json.dumps(list(devices))
        span = start_ns, min(end_ns, _LATEST_NS)
        is_stored = tables_version(connection) >= 3
        contest = "h.contested_ns, h.switching_ns" if is_stored else "NULL, NULL"
        query = _HOLDINGS.format(contest=contest)
        rows = connection.execute(query, (*span, uuids, uuids, limit))
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


def _recorded_span(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the start of the counted time and the time of the last sample; 0 for a missing one.

    The start is known to the nanosecond while the ledger has its first hour, otherwise to the hour.
    """
    (first,) = connection.execute("SELECT MIN(hour) FROM device_hours").fetchone()
    (last,) = connection.execute("SELECT MAX(at_ns) FROM state").fetchone()
    first, last = typed((first, last), "oo")
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (START_KEY,)).fetchone()
    hour_ns, start_ns = (first or 0) * HOUR_NS, int(row[0]) if row else 0
    return start_ns if start_ns // HOUR_NS == first else hour_ns, last or 0


def _holding_record(row: tuple[Any, ...]) -> HoldingRecord:
    device, namespace, pod, container, uid, kind, owner, labels, *rest = typed(
        row, "ttttttttnonttnnnooooootoo"
    )
    container_identity = ContainerIdentity(
        PartialRef(namespace, pod, container, uid), kind, owner, pairs(labels)
    )
    *rest, xids, contested, switching = rest
    rest.append(tuple(sorted((int(code), count) for code, count in json.loads(xids).items())))
    record = HoldingRecord(device, container_identity, *rest)
    return replace(record, contested_ns=contested, switching_ns=switching)
