"""Build the status document: state of podgpu, GPUs, sources, sinks, and usage of the last day.

The functions have no side effects.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.base.safe_text import line
from pipeline.base.telemetry import Point
from pipeline.model import Instant, SourceState
from pipeline.status_page.daemon_state import StatusInput, date
from pipeline.status_page.data_notes import notes
from pipeline.status_page.device_status import gpus
from pipeline.status_page.problem_list import with_problems
from pipeline.status_page.status_document import (
    ErrorStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
)
from pipeline.status_page.usage_status import usage_of
from pipeline.status_page.use_format import LARGEST

LONGEST_ERROR: Final = 600
"""Maximum number of characters of an error: its advice must not be cut."""

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
    usage = usage_of(status_input)
    status = StatusDocument(
        node=line(status_input.node),
        podgpu=status_input.version,
        notes=notes(status_input.sources, found or (), usage),
        time=date(status_input.now.wall_ns),
        started=None if started is None else date(round(started * 1e9)),
        ready=ready,
        waiting_for=None if ready else line(text),
        driver=_driver(status_input),
        gpus=found,
        devices_left_out=left_out,
        sources=tuple(
            _source(status_input, name, state, of_sources)
            for name, state in _with_relayed(status_input.sources)
        ),
        sinks=tuple(
            _sink(status_input, name, kind, of_sinks, losses.get(name))
            for name, kind in status_input.sinks.items()
        ),
        usage=usage,
    )
    return with_problems(status, status_input)


def _driver(status_input: StatusInput) -> str | None:
    if status_input.snapshot is None:
        return None
    devices = (one.device for one in status_input.snapshot.layout.attributions.values())
    return next((line(device.driver) for device in devices if device.driver), None)


def _with_relayed(sources: Mapping[str, SourceState]) -> Sequence[tuple[str, SourceState]]:
    """Return the sources with those that another one relays directly after it."""
    places = {name: at for at, name in enumerate(sources)}
    return sorted(
        sources.items(),
        key=lambda item: (
            places.get(item[1].relayed_by, places[item[0]]),
            bool(item[1].relayed_by),
        ),
    )


def _source(
    status_input: StatusInput, name: str, state: SourceState, value: Figures
) -> SourceStatus:
    error = _error(status_input, ("source", name), over=state.up or not state.has_reported)
    reason = line(state.reason, LONGEST_ERROR)
    if reason and not state.up and (error is None or error.text != reason):
        age = status_input.age(state.down_since)
        error = ErrorStatus(text=reason, age_seconds=age, over=False)
    return SourceStatus(
        name=line(name),
        kind=line(state.kind),
        relayed_by=line(state.relayed_by) or None,
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
        text=line(last_error.text, LONGEST_ERROR),
        age_seconds=status_input.age(last_error.at),
        over=None if last_error.warning else over,
    )


def _count(reported: Figures, family: str, name: str) -> int | None:
    value = reported.get((family, name))
    return None if value is None else min(round(value), LARGEST)


def _flag(reported: Figures, family: str, name: str) -> bool | None:
    value = reported.get((family, name))
    return None if value is None else value == 1
