"""Build the usage of a status document, from the last result of a ledger."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.ledger.reports import Report, Row, Sum
from pipeline.model import split_error_ns
from pipeline.status_page.container_use import text_or_none
from pipeline.status_page.daemon_state import StatusInput, date
from pipeline.status_page.device_status import MOST_DEVICES
from pipeline.status_page.periods import days_of, hours_of
from pipeline.status_page.usage_format import (
    AmountsStatus,
    DayStatus,
    DeviceAmountsStatus,
    PodAmountsStatus,
    UsageStatus,
)
from pipeline.status_page.use_format import LARGEST

MOST_PODS: Final = 10
"""Maximum number of pods in a document: those with the most held time. The others are summed."""


def usage_of(status_input: StatusInput) -> UsageStatus | None:
    """Return the usage from the ledger; None without a ledger."""
    day = status_input.last_day
    if day is None:
        return None
    return UsageStatus(
        sink=line(day.sink),
        age_seconds=status_input.age(day.read_at),
        error=line(day.error) or None,
        # Without any devices the totals are unknown, not 0.
        day=None
        if day.report is None or not day.report.window.totals
        else _day(status_input, day.report),
        hours=hours_of(day),
        days=days_of(day),
        sample_data=None if day.report is None else line(day.report.window.sample_data) or None,
    )


def _day(status_input: StatusInput, report: Report) -> DayStatus:
    window = report.window
    others = report.rows[MOST_PODS:]
    devices = _devices(status_input)
    unattributed = replace(
        report.unattributed, free_ns=report.free.free_ns, unknown_ns=report.unknown.unknown_ns
    )
    return DayStatus(
        since=date(window.start_ns),
        until=date(window.end_ns),
        accounted_seconds=_seconds(sum(total.accounted_ns for total in window.totals)),
        gap_seconds=_seconds(sum(total.gap_ns for total in window.totals)),
        pods=tuple(_pod(row) for row in report.rows[:MOST_PODS]),
        others=AmountsStatus(**_amounts(others)) if others else None,
        pods_left_out=len(others),
        unattributed=AmountsStatus(**_amounts([unattributed])),
        total=AmountsStatus(**_amounts([report.total])),
        devices=tuple(_device(row) for row in devices[:MOST_DEVICES]),
        devices_left_out=max(len(devices) - MOST_DEVICES, 0),
    )


def _devices(status_input: StatusInput) -> Sequence[Row]:
    """Return the rows of devices in the order of the snapshot; devices not in it come last."""
    day, snapshot = status_input.last_day, status_input.snapshot
    if day is None or day.devices is None:
        return ()
    present = {} if snapshot is None else snapshot.layout.attributions
    order = {uuid: at for at, uuid in enumerate(present)}
    return sorted(day.devices.rows, key=lambda row: order.get(_uuid(row), len(order)))


def _uuid(row: Row) -> str:
    return (row.key.parts[0] or "") if row.key is not None else ""


def _device(row: Row) -> DeviceAmountsStatus:
    name = None if row.key is None else text_or_none(row.key.parts[1])
    return DeviceAmountsStatus(uuid=line(_uuid(row)), name=name, **_amounts([row]))


def _pod(row: Row) -> PodAmountsStatus:
    namespace, pod, uid = (None,) * 3 if row.key is None else map(text_or_none, row.key.parts)
    return PodAmountsStatus(namespace=namespace, pod=pod, uid=uid, **_amounts([row]))


def _amounts(rows: Sequence[Row]) -> dict[str, Any]:
    sums = [[getattr(row, name) for row in rows] for name in ("busy_ns", "idle_ns", "energy_mj")]
    busy, idle, energy = map(_known, sums)
    is_sum = len(rows) > 1
    unknown = any(each.known is None for each in chain(*sums))
    parts = [[getattr(row, name) for row in rows] for name in ("allocated", "used")]
    allocated, used_parts = ([part for part in each if part is not None] for each in parts)
    return {
        "held_seconds": _seconds(sum(row.held_ns for row in rows)),
        "free_seconds": _seconds(sum(row.free_ns for row in rows)),
        "unknown_seconds": _seconds(sum(row.unknown_ns for row in rows)),
        "allocated_ratio": _ratio(sum(allocated)) if allocated else None,
        "used_ratio": _ratio(sum(used_parts)) if used_parts else None,
        "busy_seconds": None if busy is None else _seconds(busy),
        "busy_error_seconds": _busy_error(rows),
        "idle_seconds": None if idle is None else _seconds(idle),
        "energy_joules": None if energy is None else _bounded(energy / 1e3),
        "holdings": min(sum(row.holdings or 0 for row in rows), LARGEST),
        "incomplete": any(row.partial for row in rows) or (is_sum and unknown),
    }


def _busy_error(rows: Sequence[Row]) -> float | None:
    contested = [row.contested_ns for row in rows if row.contested_ns is not None]
    switching = [row.switching_ns for row in rows if row.switching_ns is not None]
    if len(contested) < len(rows):
        return None
    error = split_error_ns(sum(contested), sum(switching))
    return None if error is None else _seconds(error)


def _known(sums: Sequence[Sum[int]]) -> int | None:
    known = [each.known for each in sums if each.known is not None]
    return sum(known) if known else None


def _seconds(ns: int) -> float:
    return _bounded(ns / 1e9)


def _ratio(part: Fraction | int) -> float:
    return min(round(float(part), 6), LARGEST)


def _bounded(figure: float) -> float:
    return min(max(round(figure, 3), -LARGEST), LARGEST)
