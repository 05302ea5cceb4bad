"""Build the status document: state of podgpu, GPUs, sources, sinks, and usage of the last day.

The functions have no side effects.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.base.telemetry import Point
from pipeline.ledger.reports import Report, Row, Sum
from pipeline.model import Instant, SourceState
from pipeline.status_page.container_use import text_or_none
from pipeline.status_page.daemon_state import StatusInput, date
from pipeline.status_page.device_status import MOST_DEVICES, gpus
from pipeline.status_page.periods import days_of, hours_of
from pipeline.status_page.problem_list import with_problems
from pipeline.status_page.status_document import (
    AmountsStatus,
    DayStatus,
    DeviceAmountsStatus,
    ErrorStatus,
    PodAmountsStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
    UsageStatus,
)
from pipeline.status_page.use_format import LARGEST

MOST_PODS: Final = 10
"""Maximum number of pods in a document: those with the most held time. The others are summed."""

_ONGOING_SECONDS: Final = 45.0
"""Seconds after its last error at which a sink that lost data counts as recovered.

Errors are reported one at a time, and some sinks send only twice a minute.
"""

Figures = Mapping[tuple[str, str], float]
"""Sums of podgpu's own metrics, by family and component name."""


def status_of(status_input: StatusInput) -> StatusDocument:
    """Return the status document for a state of the daemon."""
    found, left_out = gpus(status_input)
    ready, text = status_input.ready
    started = status_input.started
    of_sources, of_sinks = (_figures(status_input, role) for role in ("source", "sink"))
    losses = _losses(status_input)
    status = StatusDocument(
        node=line(status_input.node),
        podgpu=status_input.version,
        time=date(status_input.now.wall_ns),
        started=None if started is None else date(round(started * 1e9)),
        ready=ready,
        waiting_for=None if ready else line(text),
        driver=_driver(status_input),
        gpus=found,
        devices_left_out=left_out,
        sources=tuple(
            _source(status_input, name, state, of_sources)
            for name, state in status_input.sources.items()
        ),
        sinks=tuple(
            _sink(status_input, name, kind, of_sinks, losses.get(name))
            for name, kind in status_input.sinks.items()
        ),
        usage=_used(status_input),
    )
    return with_problems(status, status_input)


def _driver(status_input: StatusInput) -> str | None:
    if status_input.snapshot is None:
        return None
    devices = (one.device for one in status_input.snapshot.layout.attributions.values())
    return next((line(device.driver) for device in devices if device.driver), None)


def _source(
    status_input: StatusInput, name: str, state: SourceState, value: Figures
) -> SourceStatus:
    error = _error(status_input, ("source", name), over=state.up or not state.has_reported)
    if state.reason and not state.up and (error is None or error.text != line(state.reason)):
        age = status_input.age(state.down_since)
        error = ErrorStatus(text=line(state.reason), age_seconds=age, over=False)
    return SourceStatus(
        name=line(name),
        kind=line(state.kind),
        state="up" if state.up else "down" if state.has_reported else "waiting",
        age_seconds=status_input.age(state.last_event_at),
        confirmed_seconds=status_input.age(state.confirmed_at),
        devices=state.devices,
        unresolved=len(state.unresolved),
        restarts=_count(value, "source_restarts_total", name),
        error=error,
    )


def _sink(
    status_input: StatusInput, name: str, kind: str, value: Figures, last_loss: Instant | None
) -> SinkStatus:
    up = _flag(value, "sink_up", name)
    delivering = _flag(value, "sink_delivering", name)
    writable = _flag(value, "sink_queue_writable", name)
    age = value.get(("sink_oldest_age_seconds", name))
    dropped = _count(value, "sink_dropped_total", name)
    rejected = _count(value, "sink_rejected_total", name)
    lost = bool(dropped or rejected)
    last_error = status_input.troubles.get(("sink", name))
    ago = status_input.age(last_error.at) if last_error is not None else None
    ongoing = lost and ago is not None and ago < _ONGOING_SECONDS
    return SinkStatus(
        name=line(name),
        kind=line(kind) or None,
        up=up,
        delivering=delivering,
        queued=_count(value, "sink_queued", name),
        queue_bytes=_count(value, "sink_queue_bytes", name),
        queue_writable=writable,
        oldest_seconds=None if age is None else min(round(age, 3), LARGEST),
        emitted=_count(value, "sink_emitted_total", name),
        dropped=dropped,
        rejected=rejected,
        lost_seconds=status_input.age(last_loss) if lost else None,
        errors=_count(value, "sink_errors_total", name),
        error=_error(
            status_input,
            ("sink", name),
            over=False not in (up, delivering, writable) and not ongoing,
        ),
    )


def _figures(status_input: StatusInput, role: str) -> Figures:
    """Return the sums of podgpu's own metrics for a role, `source` or `sink`.

    Each sum is over all other labels, such as the reason.
    """
    sums: dict[tuple[str, str], float] = {}
    for family, points in status_input.telemetry:
        for point in points:
            name = _owner(point, role)
            if name is not None and not point.suffix:
                key = family.name.removeprefix("podgpu_"), name
                sums[key] = sums.get(key, 0.0) + point.value
    return sums


def _losses(status_input: StatusInput) -> Mapping[str, Instant]:
    """Return the time of the last loss of each sink that lost data, by name of the sink."""
    found: dict[str, Instant] = {}
    for family, points in status_input.telemetry:
        for point in points if family.timestamped else ():
            name, last_increase = _owner(point, "sink"), point.last_increase
            if name is not None and last_increase is not None:
                previous = found.get(name, last_increase)
                found[name] = max(previous, last_increase, key=lambda at: at.mono_ns)
    return found


def _owner(point: Point, role: str) -> str | None:
    return next((value for label, value in point.labels if label == role), None)


def _error(status_input: StatusInput, owner: tuple[str, str], *, over: bool) -> ErrorStatus | None:
    last_error = status_input.troubles.get(owner)
    if last_error is None:
        return None
    return ErrorStatus(
        text=line(last_error.text),
        age_seconds=status_input.age(last_error.at),
        over=None if last_error.warning else over,
    )


def _count(reported: Figures, family: str, name: str) -> int | None:
    value = reported.get((family, name))
    return None if value is None else min(round(value), LARGEST)


def _flag(reported: Figures, family: str, name: str) -> bool | None:
    value = reported.get((family, name))
    return None if value is None else value == 1


def _used(status_input: StatusInput) -> UsageStatus | None:
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
    )


def _day(status_input: StatusInput, report: Report) -> DayStatus:
    window = report.window
    others = report.rows[MOST_PODS:]
    devices = _devices(status_input)
    return DayStatus(
        since=date(window.start_ns),
        until=date(window.end_ns),
        accounted_seconds=_seconds(sum(total.accounted_ns for total in window.totals)),
        gap_seconds=_seconds(sum(total.gap_ns for total in window.totals)),
        pods=tuple(_pod(row) for row in report.rows[:MOST_PODS]),
        others=AmountsStatus(**_amounts(others)) if others else None,
        pods_left_out=len(others),
        unattributed=AmountsStatus(**_amounts([report.unattributed])),
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
        "idle_seconds": None if idle is None else _seconds(idle),
        "energy_joules": None if energy is None else _bounded(energy / 1e3),
        "holdings": min(sum(row.holdings for row in rows), LARGEST),
        "incomplete": any(row.partial for row in rows) or (is_sum and unknown),
    }


def _known(sums: Sequence[Sum[int]]) -> int | None:
    known = [each.known for each in sums if each.known is not None]
    return sum(known) if known else None


def _seconds(ns: int) -> float:
    return _bounded(ns / 1e9)


def _ratio(part: Fraction | int) -> float:
    return min(round(float(part), 6), LARGEST)


def _bounded(figure: float) -> float:
    return min(max(round(figure, 3), -LARGEST), LARGEST)
