"""podgpu's own metrics, health and readiness."""

import platform
from collections import defaultdict
from collections.abc import Mapping

from pipeline.base.channels import Channel
from pipeline.base.clock import Clock
from pipeline.base.telemetry import FamilyPoints, Point, Telemetry
from pipeline.base.version import VERSION
from pipeline.host.process_metrics import process_points
from pipeline.model import Envelope, Snapshot, SourceState
from pipeline.runtime.publisher import Publisher

_HEARTBEAT_LIMIT = 10.0
"""Seconds without a processed event after which podgpu is unhealthy."""

_READY_LIMIT = 15.0
"""Seconds after the start of podgpu until which it waits for sources that have not reported."""


class Status:
    """Computes health, readiness and podgpu's own metrics. No method blocks."""

    def __init__(
        self, publisher: Publisher, inbox: Channel[Envelope], telemetry: Telemetry, clock: Clock
    ) -> None:
        self._publisher = publisher
        self._inbox = inbox
        self._telemetry = telemetry
        self._clock = clock
        self._started = clock.now()

    def healthy(self) -> tuple[bool, str]:
        """Return whether the event loop and the join work, and why not as a line of text."""
        beat = self._publisher.heartbeat or self._started
        age = beat.seconds_until(self._clock.now())
        if age > _HEARTBEAT_LIMIT:
            return False, f"podgpu has not processed any event for {age:.0f} s"
        return True, "ok"

    def ready(self) -> tuple[bool, str]:
        """Return whether podgpu has data to show, and why not as a line of text.

        podgpu is ready if there is a snapshot, and each source has reported or 15 s have passed
        since the start. It is not ready while all sources that enumerate devices are down.
        """
        if self._publisher.latest is None:
            return False, "no snapshot yet"
        silent = [n for n, s in self._publisher.join.sources().items() if not s.has_reported]
        if silent and self._started.seconds_until(self._clock.now()) < _READY_LIMIT:
            return False, f"waiting for the first report of: {', '.join(silent)}"
        with_devices = {n: s for n, s in self._publisher.join.sources().items() if s.devices}
        if with_devices and not any(state.up for state in with_devices.values()):
            return False, f"no GPU can be read: {', '.join(with_devices)} is down"
        return True, "ready"

    def collect(self) -> list[FamilyPoints]:
        """Return the current values of podgpu's own metrics."""
        latest = self._publisher.latest
        computed: dict[str, list[Point]] = {
            "podgpu_build_info": [
                Point((("version", VERSION), ("python", platform.python_version())), 1)
            ],
            "podgpu_inbox_depth": [Point((), len(self._inbox))],
            "podgpu_gpus": _gpu_points(latest),
            **self._source_points(self._publisher.join.sources()),
            **process_points(self._started),
        }
        if latest is not None and latest.topology is not None:
            contradictions = len(latest.topology.contradictions)
            computed["podgpu_topology_contradictions"] = [Point((), contradictions)]
        if latest is not None and latest.usage is not None:
            left_out = latest.usage.rejected_containers
            computed["podgpu_usage_left_out_containers"] = [Point((), left_out)]
        return self._telemetry.collect(computed)

    def _source_points(self, sources: Mapping[str, SourceState]) -> dict[str, list[Point]]:
        now = self._clock.now()
        points: defaultdict[str, list[Point]] = defaultdict(list)
        for name, state in sources.items():
            labels = (("source", name), ("kind", state.kind))
            values: dict[str, float] = {
                "podgpu_source_up": float(state.up),
                "podgpu_source_events_total": state.events,
            }
            if state.last_event_at is not None:
                values["podgpu_source_age_seconds"] = state.last_event_at.seconds_until(now)
            if state.confirmed_at is not None:
                values["podgpu_attribution_age_seconds"] = state.confirmed_at.seconds_until(now)
                values["podgpu_device_ids_unresolved"] = len(state.unresolved)
                values["podgpu_unresolved_device_ids_total"] = state.unresolved_total
            for family, value in values.items():
                points[family].append(Point(labels, value))
        return points


def _gpu_points(snapshot: Snapshot | None) -> list[Point]:
    """Count the physical GPUs; return no points before a source has enumerated devices.

    How many of them respond is only known if the plan has `gpu_up`.
    """
    if snapshot is None or all(s.devices is None for s in snapshot.sources.values()):
        return []
    layout = snapshot.layout
    expected = sum(1 for known in layout.attributions.values() if known.device.mig is None)
    pairs = zip(layout.series, snapshot.readings, strict=True)
    up = [reading.value for series, reading in pairs if series.field == "gpu_up"]
    points = [Point((("state", "expected"),), expected)]
    if up or not expected:
        points.insert(0, Point((("state", "present"),), sum(value == 1 for value in up)))
    return points
