"""A sum of hours is incomplete if the value of one hour is unknown and that of another is known."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest

from pipeline.ledger.queries import read_window
from pipeline.ledger.reports import GroupBy, Prices, Row, Sum, build_report
from pipeline.ledger.schema import HOUR_NS, TABLES, UNATTRIBUTED_ID, VERSION

CONTAINER = 1
Hour = tuple[int, int, int, int | None, int | None]
"""Container, accounted time of the device, held time, busy time and energy."""


def rows_of(hours: Sequence[Hour], changes: Sequence[int] = ()) -> list[Row]:
    """Return the row of the pod and that of unattributed usage, of hours from 0 on."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as ledger:
        ledger.executescript(TABLES)
        ledger.execute(f"PRAGMA user_version = {VERSION}")
        ledger.execute("INSERT INTO devices VALUES (1, 'GPU-0', 'H100', '', 'GPU-0')")
        ledger.execute(
            "INSERT INTO containers (id, namespace, pod, container, uid) "
            "VALUES (?, 'ml', 'a', 'main', 'u')",
            (CONTAINER,),
        )
        for hour, (container, accounted, *amounts) in enumerate(hours):
            ledger.execute(
                "INSERT INTO device_hours VALUES (?, 1, ?, 0, NULL, NULL, 0)", (hour, accounted)
            )
            ledger.execute(
                "INSERT INTO hours VALUES (?, 1, ?, ?, ?, ?, 0, 0)",
                (hour, container, *amounts),
            )
        window = read_window(ledger, 0, len(hours) * HOUR_NS, changes)
    report = build_report(window, GroupBy("pod"), Prices())
    return [*report.rows, report.unattributed]


@pytest.mark.parametrize(
    ("hours", "busy", "idle", "energy"),
    [
        ([(9, 4, 1), (9, 2, 2)], Sum(6), Sum(12), Sum(3)),
        ([(9, 4, 1), (8, None, 2)], Sum(4, partial=True), Sum(5, partial=True), Sum(3)),
        ([(9, 4, None), (8, 2, 2)], Sum(6), Sum(11), Sum(2, partial=True)),
        ([(9, None, None), (8, None, None)], Sum(), Sum(), Sum()),
        ([(9, 0, 1), (8, None, 2)], Sum(0, partial=True), Sum(9, partial=True), Sum(3)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("changes", [(), (HOUR_NS,)])
def test_a_container_s_hours(
    hours: list[tuple[int, int | None, int | None]],
    busy: Sum[int],
    idle: Sum[int],
    energy: Sum[int],
    changes: Sequence[int],
) -> None:
    row, _ = rows_of([(CONTAINER, 10, *amounts) for amounts in hours], changes)
    assert (row.busy_ns, row.idle_ns, row.energy_mj) == (busy, idle, energy)
    assert row.held_ns == sum(held for held, *_ in hours)


@pytest.mark.parametrize(
    ("accounted", "held", "busy"),
    [
        # The GPU has MIG instances in this hour: it has only energy, and no busy time is missing.
        (0, 0, Sum(4)),
        (10, 0, Sum(4, partial=True)),
        (10, 10, Sum(4, partial=True)),
    ],
)
def test_an_hour_of_a_gpu_without_counted_time(accounted: int, held: int, busy: Sum[int]) -> None:
    free = UNATTRIBUTED_ID, 10, 10, 4, 1
    [row] = rows_of([free, (UNATTRIBUTED_ID, accounted, held, None, 1)])
    assert (row.busy_ns, row.energy_mj) == (busy, Sum(2))
