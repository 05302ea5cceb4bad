"""The sink `pods`."""

from functools import partial
from http import HTTPStatus
from typing import Any, Final, Self

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import SinkContext
from pipeline.component.readiness import HolderCompleteness
from pipeline.component.warnings import warn
from pipeline.kube.api_errors import is_admission_denial
from pipeline.kube.api_sink import ApiSink, Work, counted
from pipeline.kube.json_access import as_dict, parsed_object
from pipeline.model import NS, Layout, Snapshot
from pipeline.model.plugin_ids import glob_matcher
from sinks.pods.annotation_decision import NO_IDENTITY, Decision, decide
from sinks.pods.held_devices import DesiredAnnotations, PodRef, desired_annotations
from sinks.pods.options import Options
from sinks.pods.pod_queue import PodQueue
from sinks.pods.skip_reports import SkipReports

_ATTEMPTS: Final = 4
"""Maximum number of attempts to read and change a pod, if other programs change it in between."""

_INTERVAL: Final = 0.1
"""Seconds between the starts of two updates."""

_WARNING_DELAY: Final = 15.0
"""Seconds after which a warning is logged if no extended resource with GPUs is known."""


class PodsSink(ApiSink):
    """Keeps the annotations of pods up to date with the devices that the pods hold.

    The sink remembers which pods are up to date: the same object is used again after an error.

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
        self._reporter = SkipReports(ctx)

    async def __aenter__(self) -> Self:
        """Start to wait for the sources, and open the session."""
        self._completeness.begin()
        return await super().__aenter__()

    def _take(self, snapshot: Snapshot | None) -> None:
        """Determine what pods hold, once no source is waited for any more.

        `HolderCompleteness` waits for sources that can report holders, for a limited time.
        """
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
        """Log once that no resource is known, after `_WARNING_DELAY`."""
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
        """Return the seconds until the warning that no resource is known; None if none is due."""
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
        done = await self._annotate(place, what)
        record = self._queue.record_done if done else self._queue.postpone
        record(place, self._ctx.clock.now().mono_ns)

    async def _annotate(self, place: PodRef, what: DesiredAnnotations) -> bool:
        """Update the annotations of a pod; values of other programs stay unchanged.

        Args:
            place: namespace and name of the pod.
            what: the desired annotations.

        Returns:
            Whether the pod is done: its annotations are up to date, or it must not be changed.
            False if it has to be tried again later: it does not exist, other programs kept changing
            it, the change was refused or removed, or the sink is stopping.

        Raises:
            ApiError: the server refused the request, or could not be reached.
            TransientError: the response is not a pod.
        """
        for _ in range(_ATTEMPTS):
            try:
                if (decision := await self._read_and_decide(place, what)).changes is None:
                    return True
                if self._is_stopping():
                    return False
                return await self._patch(place, decision)
            except ApiError as error:
                match error.status:
                    case HTTPStatus.CONFLICT:
                        continue
                    case HTTPStatus.NOT_FOUND:
                        return False
                    case _:
                        raise
        return False

    async def _read_and_decide(self, place: PodRef, what: DesiredAnnotations) -> Decision:
        body = await counted(self._ctx.meter, "get", self._api.get(place.path, {}))
        decision = decide(parsed_object(body), what, self._ctx.node)
        if decision.reason == NO_IDENTITY:
            raise TransientError(
                f"GET {place.path}: the response is not a Pod; check that the address is that of "
                "an API server and that no proxy responds in its place"
            )
        self._reporter.on_decision(place, what, decision)
        return decision

    async def _patch(self, place: PodRef, decision: Decision) -> bool:
        """Send the change; return whether the response contains the change."""
        changes = decision.changes or {}
        try:
            body = await counted(self._ctx.meter, "patch", self._api.patch(place.path, changes))
        except ApiError as error:
            # A denial of a webhook, with any status, concerns only this pod.
            if is_admission_denial(error):
                self._reporter.on_refusal("denied", place, decision.keys, error)
            elif error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                self._reporter.on_refusal("invalid", place, decision.keys, error)
            else:
                raise
            return False
        present, written = _annotations(parsed_object(body)), _annotations(changes)
        if any(present.get(key) != value for key, value in written.items()):
            self._reporter.on_refusal("dropped", place, decision.keys)
            return False
        self._ctx.log.debug("pod %s: wrote %s", place, ", ".join(decision.keys))
        return True

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return the seconds until a pod, a warning or the end of a wait is due; None for never."""
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


def _annotations(pod: Any) -> dict[str, Any]:
    return as_dict(as_dict(as_dict(pod).get("metadata")).get("annotations"))
