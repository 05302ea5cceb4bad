"""Queries of the usage by device and container."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from pipeline.ledger.schema import HOUR_NS, UNATTRIBUTED_ID
from pipeline.ledger.stored_values import pairs, typed
from pipeline.model import PartialRef
from pipeline.model.ledger_usage import ContainerIdentity, UsageRow

# In an hour without counted time, as of a GPU with MIG instances, no busy time is missing.
_USAGE: Final = f"""
SELECT h.device, h.container, SUM(h.held_ns), SUM(h.busy_ns), SUM(h.energy_mj),
    MAX(h.busy_ns IS NULL AND (h.container <> {UNATTRIBUTED_ID} OR h.held_ns <> 0 OR EXISTS (
        SELECT 1 FROM device_hours AS d
        WHERE d.hour = h.hour AND d.device = h.device AND d.accounted_ns <> 0
    ))),
    MAX(h.energy_mj IS NULL),
    SUM(CASE WHEN h.busy_ns IS NULL THEN h.held_ns ELSE 0 END), {{contest}}
FROM hours AS h WHERE h.hour >= ? AND h.hour < ? GROUP BY h.device, h.container
"""  # noqa: S608
# Unknown if it is unknown for a part of the busy time.
_CONTEST: Final = """
CASE WHEN MAX(h.busy_ns IS NOT NULL AND h.contested_ns IS NULL) THEN NULL
    ELSE SUM(h.contested_ns) END,
CASE WHEN MAX(h.busy_ns IS NOT NULL AND h.switching_ns IS NULL) THEN NULL
    ELSE SUM(h.switching_ns) END
"""
_COUNTS: Final = """
SELECT device, container, COUNT(*) FROM holdings INDEXED BY holdings_by_end
WHERE {ends} AND start_ns < ? GROUP BY device, container
"""
_CONTAINERS: Final = (
    "SELECT id, namespace, pod, container, uid, owner_kind, owner_name, labels FROM containers "
    "WHERE id IN (SELECT value FROM json_each(?))"
)
_UNKNOWN: Final = """
SELECT device, {unknown} FROM device_hours WHERE hour >= ? AND hour < ? GROUP BY device
"""


def unknown_sum(connection: sqlite3.Connection) -> str:
    """Return the expression for the time with unknown holders, which version 1 does not store."""
    return "0" if tables_version(connection) < 2 else "SUM(ifnull(unknown_ns, 0))"


def tables_version(connection: sqlite3.Connection) -> int:
    """Return the version of the tables of a file, which a reader does not migrate."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def usage_of_spans(
    connection: sqlite3.Connection,
    devices: dict[int, tuple[str, str]],
    whole: tuple[int, int],
    price_changes: Sequence[int],
) -> tuple[UsageRow, ...]:
    """Return the usage rows of each span of equal prices.

    The holdings of a container on a device are in the first of its rows.
    """
    if not price_changes:
        return tuple(_usage_rows(connection, devices, whole, whole))
    first, beyond = whole
    edges = [hour for hour in (ns // HOUR_NS for ns in price_changes) if first < hour < beyond]
    rows: list[UsageRow] = []
    counted: set[tuple[str, ContainerIdentity | None]] = set()
    query = _UNKNOWN.format(unknown=unknown_sum(connection))
    for hours in pairwise([first, *edges, beyond]):
        unknown = {devices[key][0]: ns for key, ns in connection.execute(query, hours)}
        for one in _usage_rows(connection, devices, hours, whole):
            known = (one.device, one.container) in counted
            counted.add((one.device, one.container))
            rows.append(
                replace(
                    one,
                    since_ns=hours[0] * HOUR_NS,
                    holdings=0 if known else one.holdings,
                    unknown_ns=unknown.get(one.device, 0) if one.container is None else None,
                )
            )
    return tuple(rows)


def _usage_rows(
    connection: sqlite3.Connection,
    devices: dict[int, tuple[str, str]],
    hours: tuple[int, int],
    whole: tuple[int, int],
) -> Iterator[UsageRow]:
    contest = "NULL, NULL" if tables_version(connection) < 3 else _CONTEST
    rows = connection.execute(_USAGE.format(contest=contest), hours).fetchall()
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
    for device, container, held, busy, energy, no_busy, no_energy, *rest in (
        typed(row, "nnnoonnnoo") for row in rows
    ):
        held_without_busy, contested, switching = rest
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
            contested_ns=None if busy is None else contested,
            switching_ns=None if busy is None else switching,
        )


def _containers_by_id(
    connection: sqlite3.Connection, ids: set[int]
) -> dict[int, ContainerIdentity]:
    rows = connection.execute(_CONTAINERS, (json.dumps(sorted(ids)),))
    return {
        key: ContainerIdentity(PartialRef(*name), kind, owner, pairs(labels))
        for key, *name, kind, owner, labels in (typed(row, "nttttttt") for row in rows)
    }
