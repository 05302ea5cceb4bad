"""The sink `node`, and the content of its annotation."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Final, Self, TypeAlias

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import SinkContext
from pipeline.component.holder_sources import POD_LISTING_KINDS, lists_holders
from pipeline.component.readiness import HolderCompleteness
from pipeline.component.shutdown import STOP_SECONDS
from pipeline.component.warnings import warn
from pipeline.kube.api_sink import ApiSink, Work, failure_text
from pipeline.model import NS, Instant, Snapshot
from pipeline.model.availability import Availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import annotation
from sinks.node.node_annotation import NodeAnnotation
from sinks.node.options import Options
from sinks.node.other_writers import ConcurrentWriters
from sinks.node.write_schedule import WriteSchedule

_LAST_PATCH: Final = "patched"
"""Key of the state that is kept over a reload: the Node that was last changed, and the time."""

ContentKey: TypeAlias = tuple[str, bool]
"""The annotation's value without its time, and `Content.is_current`."""


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """Topology and availability, as in the latest snapshot.

    Attributes:
        topology: the topology of the node.
        availability: which GPUs are free; None where that is unknown.
        at: the time of this content.
        refresh: seconds after which the annotation is written again.
        is_current: whether a source still reports the topology. If none does, the annotation is
            written once more, with the time of the first such content, and not refreshed.
        body: the annotation's value without its time.
    """

    topology: Topology
    availability: Availability | None
    at: Instant
    refresh: float
    is_current: bool
    body: str = ""

    def after(self, before: "Content | None") -> "Content":
        """Return this content with its body.

        Return `before` if both contents are equal and not current, so that its time stays.
        """
        if (
            before is None
            or self.topology is not before.topology
            or self.availability is not before.availability
        ):
            return replace(self, body=self._value(at=0))
        return replace(self, body=before.body) if self.is_current or before.is_current else before

    @property
    def substance(self) -> ContentKey:
        """The part that is equal for two contents that differ only in time."""
        return self.body, self.is_current

    def text(self) -> str:
        """Return the annotation's value."""
        return self._value(at=self.at.wall_ns / NS)

    def _value(self, *, at: float) -> str:
        return annotation(self.topology, self.availability, at=at, refresh=self.refresh)


class NodeSink(ApiSink):
    """Keeps an annotation of the Node up to date with the topology and availability of its GPUs.

    With the option `remove: now` it removes the annotation instead. The sink remembers what it
    wrote, and when: the same object is used again after an error.

    Args:
        options: see `docs/sinks/node.md`.
        ctx: the context that the runtime provides.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        super().__init__(options.kubeconfig, ctx)
        self._options = options
        self._is_removing = options.remove == "now"
        self._node = options.node or ctx.node
        self._annotation = NodeAnnotation(self._node, options.annotation, ctx.meter)
        self._other_writers = ConcurrentWriters(str(self._annotation), ctx)
        self._schedule = WriteSchedule(options.min_interval, options.refresh, self._last_patch())
        self._completeness = HolderCompleteness(ctx.clock)
        self._content: Content | None = None
        self._written: ContentKey | None = None
        self._is_waiting = True
        self._logged: set[str] = set()

    async def __aenter__(self) -> Self:
        """Start to wait for the sources, and open the session."""
        self._completeness.begin()
        return await super().__aenter__()

    def _take(self, snapshot: Snapshot | None) -> None:
        """Determine what to write, once no source is waited for any more.

        `HolderCompleteness` waits for sources, for a limited time. A removal does not wait.
        """
        now = self._ctx.clock.now()
        if self._is_removing:
            if self._schedule.seconds_left(now) is None:
                self._schedule.change(now)
            return
        self._is_waiting = snapshot is None or not self._completeness.is_complete(snapshot)
        if snapshot is None or self._is_waiting:
            return
        content = self._content = self._content_of(snapshot)
        if content is None:
            return
        if content.substance == self._written:
            self._schedule.cancel_change()
        else:
            self._schedule.change(now)

    def _content_of(self, snapshot: Snapshot) -> Content | None:
        """Return the content for a snapshot; None if no topology has been known so far."""
        before, refresh = self._content, float(self._options.refresh)
        if not lists_holders(snapshot):
            self._log_once(
                partial(warn, self._ctx),
                "no source reports the holders of GPUs, so the annotation does not show which are "
                f"free; add one of the sources {', '.join(sorted(POD_LISTING_KINDS))}",
            )
        topology = snapshot.topology
        if topology is None and before is not None:
            topology = before.topology
        if topology is None:
            self._log_once(
                self._ctx.log.info,
                "no topology is known, so no annotation is written; add the source nvml",
            )
            return None
        is_current = snapshot.topology_is_current
        availability = snapshot.availability if is_current else None
        return Content(topology, availability, snapshot.at, refresh, is_current).after(before)

    def _log_once(self, log: Callable[[str], None], text: str) -> None:
        """Log a problem of the configuration once, when the time to wait for sources is over."""
        if text not in self._logged and self._completeness.has_timed_out:
            self._logged.add(text)
            log(text)

    def _next_work(self) -> Work | None:
        now = self._ctx.clock.now()
        if not self._active() or self._schedule.seconds_left(now) != 0:
            return None
        return self._sync(
            read=self._schedule.should_read(now), write=self._schedule.should_write(now)
        )

    def _retry_work(self) -> Work:
        """Return a read, which shows whether the failure is over, and a write if one is due.

        Raises:
            TransientError: `min_interval` allows no request yet.
        """
        now = self._ctx.clock.now()
        wait_seconds = self._schedule.seconds_until_allowed(now)
        if wait_seconds > 0:
            raise TransientError(str(self._failed), retry_after=wait_seconds)
        return self._sync(read=True, write=self._active() and self._schedule.should_write(now))

    async def _attempt(self, work: Work) -> None:
        try:
            await super()._attempt(work)
        except asyncio.CancelledError as error:
            self._failed = TransientError(f"{self._annotation}: {failure_text(error)}")
            raise

    def _sync(self, *, read: bool, write: bool) -> Work:
        run = partial(self._read_and_write, read=read, write=write)
        return Work(run, f"{self._annotation} was not written")

    def _active(self) -> bool:
        """Whether it is known what to write or remove."""
        return self._is_removing or (self._content is not None and not self._is_waiting)

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return the seconds until a request is due, or until the wait for sources ends.

        None if neither will happen without a new snapshot.
        """
        if self._active():
            return self._schedule.seconds_left(self._ctx.clock.now())
        if latest is None or not self._is_waiting:
            return None
        return max(self._completeness.seconds_left(), 0)

    async def _read_and_write(self, *, read: bool, write: bool) -> None:
        """Read the present value if `read`, and write the new one if `write`.

        If a read without a write finds another value, a write is scheduled. An annotation that is
        to be removed and does not exist is not written.
        """
        if read:
            found = await self._annotation.read(self._api)
            self._schedule.record_read(self._ctx.clock.now())
            if not self._is_removing:
                self._other_writers.check_value(found)
                if not write and not self._other_writers.is_own_value(found):
                    # For example an earlier patch was applied long after it was given up.
                    self._written = None
                    self._schedule.change(self._ctx.clock.now())
            elif found is None:
                self._schedule.record_write(self._ctx.clock.now())
                return
            else:
                self._schedule.change(self._ctx.clock.now())
        if write:
            await self._patch(None if self._is_removing else self._content)

    async def _patch(self, content: Content | None) -> None:
        text = content.text() if content is not None else None
        try:
            await self._annotation.write(self._api, text)
        except (TransientError, asyncio.CancelledError) as error:
            if not (isinstance(error, ApiError) and 400 <= error.status < 500):
                self._record_unanswered(text)
            raise
        now = self._record_patch()
        self._schedule.record_write(now, keep_refreshing=content is None or content.is_current)
        if text is None or content is None:
            self._ctx.log.info("%s was removed", self._annotation)
        else:
            self._written = content.substance
            self._other_writers.wrote(text)

    def _record_unanswered(self, text: str | None) -> None:
        """Record that the present value is unknown, because a patch may have been applied."""
        self._schedule.record_unanswered(self._record_patch())
        self._written = None
        if text is not None:
            self._other_writers.may_have_written(text)

    def _record_patch(self) -> Instant:
        """Record that the Node was changed, or may have been."""
        now = self._ctx.clock.now()
        self._schedule.record_patch(now)
        self._ctx.restart_state[_LAST_PATCH] = (self._node, now)
        return now

    def _last_patch(self) -> Instant | None:
        """Return when the sink before a reload last changed this Node; None if it did not."""
        match self._ctx.restart_state.get(_LAST_PATCH):
            case (self._node, Instant() as at):
                return at
            case _:
                return None

    async def _end(self) -> None:
        """Remove the annotation if `remove` is `at_stop`; otherwise write an unwritten change.

        The change is written only if `min_interval` allows it now and the last request succeeded.
        """
        if self._options.remove == "at_stop":
            await self._remove()
            return
        is_pending = (
            self._schedule.pending
            and self._schedule.seconds_until_allowed(self._ctx.clock.now()) == 0
        )
        if not self._active() or self._failed or not is_pending:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                read = self._schedule.should_read(self._ctx.clock.now())
                await self._attempt(self._sync(read=read, write=True))
        except (TransientError, TimeoutError) as error:
            warn(
                self._ctx,
                "%s: the last change could not be written before the sink stopped: %s",
                self._annotation,
                failure_text(error),
            )

    async def _remove(self) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._annotation.write(self._api, None)
            if self._schedule.is_uncertain:
                warn(
                    self._ctx,
                    "%s was removed, but an earlier patch got no response and may still be "
                    "applied; if the annotation comes back, remove it: %s",
                    self._annotation,
                    self._annotation.removal,
                )
        except (TransientError, TimeoutError, asyncio.CancelledError) as error:
            # If the Node is gone, so is the annotation.
            if not (isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND):
                warn(
                    self._ctx,
                    "%s could not be removed: %s; remove it: %s",
                    self._annotation,
                    failure_text(error),
                    self._annotation.removal,
                )
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            # If the new sink of a reload fails, this one runs again, and its annotation is gone.
            self._schedule.reset()
            self._record_patch()
            self._other_writers.forget()
            self._written = None
