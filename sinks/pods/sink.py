"""The class `PodsSink`."""

from functools import partial
from typing import Final, Self

from pipeline.component.contracts import SinkContext
from pipeline.component.readiness import HolderCompleteness
from pipeline.component.warnings import warn
from pipeline.kube.api_sink import ApiSink, Work
from pipeline.model import NS, Layout, Snapshot
from pipeline.model.plugin_ids import glob_matcher
from sinks.pods.held_devices import DesiredAnnotations, PodRef, desired_annotations
from sinks.pods.options import Options
from sinks.pods.pod_annotator import Annotator
from sinks.pods.work_queue import PodQueue

_INTERVAL: Final = 0.1
"""Seconds between the starts of two updates."""

_WARNING_DELAY: Final = 15.0
"""Seconds without any known resource of GPUs after which a warning is logged."""


class PodsSink(ApiSink):
    """Keeps the annotations of pods equal to the devices that they hold.

    Which pods are done is kept in the object, which is used again after an error.

    Args:
        options: see `docs/sinks/pods.md`.
        ctx: the context that the runtime provides.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        super().__init__(options.kubeconfig, ctx)
        self._options = options
        self._wants = glob_matcher(options.resources)
        self._completeness = HolderCompleteness(ctx.clock)
        self._queue = PodQueue()
        self._resources: frozenset[str] = frozenset()
        self._layout: Layout | None = None
        self._waiting = True
        self._warn_at_ns: int | None = None
        self._next_ns = 0
        self._annotator = Annotator(ctx, self._is_stopping)

    async def __aenter__(self) -> Self:
        """Start to wait for the sources, and open the session."""
        self._completeness.begin()
        return await super().__aenter__()

    def _take(self, snapshot: Snapshot | None) -> None:
        """Determine what pods hold, once every source is up or has had time to start."""
        if snapshot is None:
            return
        self._waiting = not self._completeness.is_complete(snapshot)
        if self._waiting:
            return
        if self._warn_at_ns is None:
            self._warn_at_ns = self._ctx.clock.now().mono_ns + round(_WARNING_DELAY * NS)
        if snapshot.layout is not self._layout:
            self._layout = layout = snapshot.layout
            # A resource of GPUs stays one, also while the kubelet does not report it.
            self._resources |= {name for name in layout.resources if self._wants(name)}
            if self._resources:
                attributions = layout.attributions.values()
                self._queue.update(desired_annotations(attributions, self._resources))
        self._warn()

    def _warn(self) -> None:
        """Log once that nothing can be written, after that has been so for a while."""
        if self._seconds_until_warning() == 0:
            self._warn_at_ns = -1
            warn(
                self._ctx,
                "no annotations are written: no extended resource that matches %s is known to have "
                "GPUs; this needs the source podresources or checkpoint, a device plugin that is "
                "registered with the kubelet, and `resources` that match its resources",
                ", ".join(self._options.resources),
            )

    def _seconds_until_warning(self) -> float | None:
        """Return the seconds until the warning that no resource is known; None for never."""
        if self._resources or self._warn_at_ns is None or self._warn_at_ns < 0:
            return None
        return max(self._warn_at_ns - self._ctx.clock.now().mono_ns, 0) / NS

    def _next_work(self) -> Work | None:
        now_ns = self._ctx.clock.now().mono_ns
        if now_ns < self._next_ns or (due := self._queue.next(now_ns)) is None:
            return None
        return Work(
            partial(self._update_pod, *due), f"pod {due[0]}: its annotations may be out of date"
        )

    async def _update_pod(self, place: PodRef, what: DesiredAnnotations) -> None:
        self._next_ns = self._ctx.clock.now().mono_ns + round(_INTERVAL * NS)
        done = await self._annotator.update_pod(self._api, place, what)
        now_ns = self._ctx.clock.now().mono_ns
        if done:
            self._queue.record_done(place, now_ns)
        else:
            self._queue.postpone(place, now_ns)

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return the seconds for which there is nothing to do but wait for a snapshot."""
        if latest is None:
            return None
        now_ns = self._ctx.clock.now().mono_ns
        due = self._queue.seconds_left(now_ns)
        waits = [
            self._completeness.seconds_left() if self._waiting else self._seconds_until_warning()
        ]
        if due is not None:
            waits.append(max(due, (self._next_ns - now_ns) / NS))
        return min((max(wait, 0) for wait in waits if wait is not None), default=None)
