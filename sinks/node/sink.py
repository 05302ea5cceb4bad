"""The sink `node`."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi, SinkContext, SinkInbox
from pipeline.component.holder_sources import LISTING_KINDS, lists_holders
from pipeline.component.readiness import HolderCompleteness
from pipeline.component.shutdown import STOP_SECONDS, run_until_stopped
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.model import Instant, Snapshot
from sinks.node.annotation_content import Content, ContentKey
from sinks.node.node_annotation import NodeAnnotation
from sinks.node.options import Options
from sinks.node.other_writers import ConcurrentWriters
from sinks.node.write_schedule import WriteSchedule

_AGAIN: Final = 8.0
"""Seconds that a new attempt may take before the sink is up: a stop can't cut it short."""

_PATCHED: Final = "patched"
"""What is kept over a reload: which Node was changed last, and when."""


class NodeSink:
    """Keeps an annotation of the Node equal to the topology and what is free of it.

    What was written, and when, is kept in the object: it is left and entered again after an error.

    Args:
        options: see `docs/sinks/node.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._removing = options.remove == "now"
        self._node = options.node or ctx.node
        self._place = NodeAnnotation(self._node, options.annotation, ctx.meter)
        self._others = ConcurrentWriters(str(self._place), ctx)
        self._pacing = WriteSchedule(options.min_interval, options.refresh, self._patched_before())
        self._complete = HolderCompleteness(ctx.clock)
        self._session = AsyncExitStack()
        self._api: KubeApi | None = None
        self._content: Content | None = None
        self._written: ContentKey | None = None
        self._awaiting = True
        self._failed = ""
        self._logged: set[str] = set()

    async def __aenter__(self) -> Self:
        """Join the session with the API server; after a failure, see first that it is over."""
        self._complete.begin()
        kube = self._ctx.kube(self._options.kubeconfig)
        self._api = await self._session.enter_async_context(kube)
        try:
            if self._failed:
                await self._retry()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Leave the session."""
        self._api = None
        await self._session.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Keep the annotation until the inbox ends."""
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            closing = arrivals.closing
            while not arrivals.ended:
                self._take(arrivals.latest)
                if self._due() and not closing.done():
                    await self._unless_late(closing)
                await arrivals.wait(None if closing.done() else self._idle_seconds(arrivals.latest))
        await self._end()

    def _take(self, snapshot: Snapshot | None) -> None:
        """Work out what has to stand there, once those who could name a holder have spoken."""
        now = self._ctx.clock.now()
        if self._removing:
            if self._pacing.seconds_left(now) is None:
                self._pacing.change(now)
            return
        self._awaiting = snapshot is None or not self._complete.is_complete(snapshot)
        if snapshot is None or self._awaiting:
            return
        content = self._content = self._content_of(snapshot)
        if content is None:
            return
        if content.substance == self._written:
            self._pacing.cancel_change()
        else:
            self._pacing.change(now)

    def _content_of(self, snapshot: Snapshot) -> Content | None:
        """Return what a snapshot comes to; None where no topology was ever known."""
        before, refresh = self._content, float(self._options.refresh)
        if not lists_holders(snapshot):
            self._log_once(
                partial(warn, self._ctx),
                "no source tells who holds what, so nothing is written of what is free; add one "
                f"of {', '.join(sorted(LISTING_KINDS))}",
            )
        topology = snapshot.topology
        if topology is not None and snapshot.topology_is_current:
            return Content(topology, snapshot.availability, snapshot.at, refresh, before)
        if topology is None and before is not None:
            topology = before.topology
        if topology is None:
            self._log_once(
                self._ctx.log.info,
                "no topology is known, so none is written; the source nvml tells it",
            )
            return None
        return Content(topology, None, snapshot.at, refresh, before, lasting=False)

    def _log_once(self, say: Callable[[str], None], text: str) -> None:
        """Say once what no API server can mend, once every source has had the time to speak."""
        if text not in self._logged and self._complete.has_timed_out:
            self._logged.add(text)
            say(text)

    async def _retry(self) -> None:
        """Try what failed; as long as it fails the sink isn't up, and that is told once."""
        self._take(self._ctx.latest())
        held = self._pacing.seconds_until_allowed(self._ctx.clock.now())
        if held > 0:
            raise TransientError(self._failed, retry_after=held)
        try:
            async with asyncio.timeout(_AGAIN):
                await self._sync(look=True, write=self._due() and self._writes())
        except TimeoutError:
            raise TransientError(self._failed) from None

    def _due(self) -> bool:
        """Whether it is time to look or to write."""
        return self._active() and self._pacing.seconds_left(self._ctx.clock.now()) == 0

    def _active(self) -> bool:
        """Whether it is known what should stand there."""
        return self._removing or (self._content is not None and not self._awaiting)

    def _writes(self) -> bool:
        """Whether it is time to write."""
        return self._pacing.should_write(self._ctx.clock.now())

    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return how long there is nothing to do but wait for a snapshot, seconds."""
        if self._active():
            return self._pacing.seconds_left(self._ctx.clock.now())
        if latest is None or not self._awaiting:
            return None
        return max(self._complete.seconds_left(), 0)

    async def _unless_late(self, closed: asyncio.Future[None]) -> None:
        """Look and write; once the sink has to stop, only for so long as it has time."""
        look = self._pacing.should_read(self._ctx.clock.now())
        work = await run_until_stopped(self._sync(look=look, write=self._writes()), closed)
        try:
            work.result()
        except (TransientError, asyncio.CancelledError) as error:
            if not closed.done():
                raise
            warn(self._ctx, "%s was not written: %s", self._place, _reason(error))

    async def _sync(self, *, look: bool, write: bool) -> None:
        """Look at what stands there, write what should."""
        try:
            await self._read_and_write(look=look, write=write)
        except (TransientError, asyncio.CancelledError) as error:
            self._failed = str(error) or f"{self._place}: {_reason(error)}"
            raise
        self._failed = ""

    async def _read_and_write(self, *, look: bool, write: bool) -> None:
        api, content = self._api, self._content
        assert api is not None  # noqa: S101 -- it runs between entering and leaving
        if look:
            found = await self._place.read(api)
            self._pacing.record_read(self._ctx.clock.now())
            if not self._removing:
                self._others.check_value(found)
                if not write and not self._others.is_own_value(found):
                    # Such as a patch that was made long after it was given up.
                    self._written = None
                    self._pacing.change(self._ctx.clock.now())
            elif found is None:
                self._pacing.record_write(self._ctx.clock.now())
                return
            else:
                self._pacing.change(self._ctx.clock.now())
        if write:
            await self._patch(api, None if self._removing else content)

    async def _patch(self, api: KubeApi, content: Content | None) -> None:
        text = content.text() if content is not None else None
        try:
            await self._place.write(api, text)
        except (TransientError, asyncio.CancelledError) as error:
            if not (isinstance(error, ApiError) and 400 <= error.status < 500):
                self._lost(text)
            raise
        now = self._patched()
        self._pacing.record_write(now, lasting=content is None or content.is_current)
        if text is None or content is None:
            self._ctx.log.info("%s is taken away", self._place)
        else:
            self._written = content.substance
            self._others.wrote(text)

    def _lost(self, text: str | None) -> None:
        """Without an answer nobody knows what stands there now."""
        self._pacing.record_unanswered(self._patched())
        self._written = None
        if text is not None:
            self._others.may_have_written(text)

    def _patched(self) -> Instant:
        """Note that the Node was changed, or may have been."""
        now = self._ctx.clock.now()
        self._pacing.record_patch(now)
        self._ctx.restart_state[_PATCHED] = (self._node, now)
        return now

    def _patched_before(self) -> Instant | None:
        """Return when the sink that a reload put this one in the place of changed the Node."""
        match self._ctx.restart_state.get(_PATCHED):
            case (self._node, Instant() as at):
                return at
            case _:
                return None

    async def _end(self) -> None:
        """Take the annotation away, or write the change that has waited, if it may be written."""
        if self._options.remove == "at_stop":
            await self._withdraw()
            return
        waits = (
            self._pacing.pending and self._pacing.seconds_until_allowed(self._ctx.clock.now()) == 0
        )
        if not self._active() or self._failed or not waits:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._sync(look=self._pacing.should_read(self._ctx.clock.now()), write=True)
        except (TransientError, TimeoutError) as error:
            warn(self._ctx, "%s doesn't tell of the last change: %s", self._place, _reason(error))

    async def _withdraw(self) -> None:
        api = self._api
        assert api is not None  # noqa: S101 -- it runs between entering and leaving
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._place.write(api, None)
            if self._pacing.is_uncertain:
                warn(
                    self._ctx,
                    "%s was taken away, but a patch before that got no answer and may be made "
                    "yet; if it comes back, take it away: %s",
                    self._place,
                    self._place.removal,
                )
        except TransientError as error:
            # With its Node the annotation has gone too.
            if not (isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND):
                self._log_remains(error)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._log_remains(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            # A sink whose successor can't be had runs again, and then nothing stands there.
            self._pacing.reset()
            self._patched()
            self._others.forget()
            self._written = None

    def _log_remains(self, error: BaseException) -> None:
        warn(
            self._ctx,
            "%s stays: %s; take it away: %s",
            self._place,
            _reason(error),
            self._place.removal,
        )


def _reason(error: BaseException) -> str:
    return str(error) or "no answer in time"
