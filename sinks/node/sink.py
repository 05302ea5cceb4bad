"""The sink `node`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

from pipeline.completeness import Completeness
from pipeline.contracts import KubeApi, SinkContext, SinkInbox
from pipeline.errors import ApiError, TransientError
from pipeline.model import Snapshot
from sinks.node.content import Content
from sinks.node.options import Options
from sinks.node.others import Others
from sinks.node.pacing import Pacing
from sinks.node.remote import NodeAnnotation

_LAST: Final = 3.0
"""Seconds that a sink which has to stop gives the request under way, and its last one."""

_AGAIN: Final = 8.0
"""Seconds that a new attempt may take before the sink is up: a stop can't cut it short."""


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
        self._place = NodeAnnotation(options.node or ctx.node, options.annotation, ctx.meter)
        self._others = Others(str(self._place), ctx.log, ctx.meter)
        self._pacing = Pacing(options.min_interval, options.refresh)
        self._complete = Completeness(ctx.clock)
        self._session = AsyncExitStack()
        self._api: KubeApi | None = None
        self._content: Content | None = None
        self._written = ""
        self._failed = ""
        self._told = False

    async def __aenter__(self) -> Self:
        """Join the session with the API server; after a failure, see first that it is over."""
        self._complete.begin()
        kube = self._ctx.kube(self._options.kubeconfig)
        self._api = await self._session.enter_async_context(kube)
        try:
            if self._failed:
                await self._again()
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
        snapshots = aiter(inbox)
        coming = asyncio.ensure_future(_next(snapshots))
        closed = asyncio.ensure_future(inbox.wait_closed())
        latest = self._ctx.latest()
        try:
            while True:
                self._take(latest)
                if self._due() and not closed.done():
                    await self._unless_late(closed)
                rest = None if closed.done() else self._rest(latest)
                await asyncio.wait({coming}, timeout=rest)
                if coming.done():
                    latest = coming.result()
                    if latest is None:
                        break
                    coming = asyncio.ensure_future(_next(snapshots))
        finally:
            coming.cancel()
            closed.cancel()
        await self._end()

    def _take(self, snapshot: Snapshot | None) -> None:
        """Work out what has to stand there, once those who could name a holder have spoken."""
        now = self._ctx.clock.now()
        if self._removing:
            if self._pacing.left(now) is None:
                self._pacing.change(now)
            return
        if snapshot is None or not self._complete.reached(snapshot):
            return
        if snapshot.topology is None:
            # Of the nvml source's first words it is the last.
            if not self._told and self._complete.left() <= 0:
                self._ctx.log.info(
                    "no topology is known, so none is written; the source nvml tells it"
                )
                self._told = True
            self._content = None
            return
        refresh = float(self._options.refresh)
        content = Content(snapshot.topology, snapshot, refresh, self._content)
        self._content = content
        if content.substance == self._written:
            self._pacing.settle()
        else:
            self._pacing.change(now)

    async def _again(self) -> None:
        """Try what failed; as long as it fails the sink isn't up, and that is told once."""
        self._take(self._ctx.latest())
        held = self._pacing.held(self._ctx.clock.now())
        if held > 0:
            raise TransientError(self._failed, retry_after=held)
        try:
            async with asyncio.timeout(_AGAIN):
                await self._sync(look=True, write=self._due())
        except TimeoutError:
            raise TransientError(self._failed) from None

    def _due(self) -> bool:
        """Whether it is time to write."""
        left = self._pacing.left(self._ctx.clock.now())
        return left == 0 and (self._removing or self._content is not None)

    def _rest(self, latest: Snapshot | None) -> float | None:
        """Return how long there is nothing to do but wait for a snapshot, seconds."""
        if self._removing or self._content is not None:
            return self._pacing.left(self._ctx.clock.now())
        if latest is None or self._complete.reached(latest):
            return None
        return max(self._complete.left(), 0)

    async def _unless_late(self, closed: asyncio.Future[None]) -> None:
        """Look and write; once the sink has to stop, only for so long as it has time."""
        look = self._pacing.look(self._ctx.clock.now())
        work = asyncio.ensure_future(self._sync(look=look))
        try:
            await asyncio.wait({work, closed}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({work}, timeout=_LAST)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        try:
            work.result()
        except (TransientError, asyncio.CancelledError) as error:
            if not closed.done():
                raise
            self._ctx.log.warning("%s was not written: %s", self._place, _reason(error))

    async def _sync(self, *, look: bool, write: bool = True) -> None:
        """Look at what stands there, write what should."""
        try:
            await self._looked_and_wrote(look=look, write=write)
        except (TransientError, asyncio.CancelledError) as error:
            self._failed = str(error) or f"{self._place}: {_reason(error)}"
            raise
        self._failed = ""

    async def _looked_and_wrote(self, *, look: bool, write: bool) -> None:
        api, content = self._api, self._content
        assert api is not None  # noqa: S101 -- it runs between entering and leaving
        if look:
            found = await self._place.read(api)
            self._pacing.looked(self._ctx.clock.now())
            if not self._removing:
                self._others.found(found)
            elif found is None:
                self._pacing.wrote(self._ctx.clock.now())
                return
        if write:
            await self._patch(api, None if self._removing else content)

    async def _patch(self, api: KubeApi, content: Content | None) -> None:
        text = content.text() if content is not None else None
        try:
            await self._place.write(api, text)
        except ApiError as error:
            if not 400 <= error.status < 500:
                self._lost(text)
            raise
        except asyncio.CancelledError:
            self._lost(text)
            raise
        now = self._ctx.clock.now()
        self._pacing.patched(now)
        self._pacing.wrote(now)
        if text is None or content is None:
            self._ctx.log.info("%s is taken away", self._place)
        else:
            self._written = content.substance
            self._others.wrote(text)

    def _lost(self, text: str | None) -> None:
        """Without an answer nobody knows what stands there now."""
        self._pacing.patched(self._ctx.clock.now())
        self._written = ""
        if text is not None:
            self._others.lost(text)

    async def _end(self) -> None:
        """Take the annotation away, or write the change that has waited, if it may be written."""
        if self._options.remove == "at_stop":
            await self._withdraw()
            return
        waits = self._pacing.pending and self._pacing.held(self._ctx.clock.now()) == 0
        if self._content is None or self._failed or not waits:
            return
        try:
            async with asyncio.timeout(_LAST):
                await self._sync(look=self._pacing.look(self._ctx.clock.now()))
        except (TransientError, TimeoutError) as error:
            self._ctx.log.warning(
                "%s doesn't tell of the last change: %s", self._place, _reason(error)
            )

    async def _withdraw(self) -> None:
        api = self._api
        assert api is not None  # noqa: S101 -- it runs between entering and leaving
        try:
            async with asyncio.timeout(_LAST):
                await self._place.write(api, None)
        except ApiError as error:
            # With its Node the annotation has gone too.
            if error.status != HTTPStatus.NOT_FOUND:
                self._stays(error)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._stays(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            # A sink whose successor can't be had runs again, and then nothing stands there.
            self._pacing.forget()
            self._pacing.patched(self._ctx.clock.now())
            self._others.forget()
            self._written = ""

    def _stays(self, error: BaseException) -> None:
        self._ctx.log.warning(
            "%s stays: %s; take it away: %s", self._place, _reason(error), self._place.removal
        )


async def _next(snapshots: AsyncIterator[Snapshot]) -> Snapshot | None:
    return await anext(snapshots, None)


def _reason(error: BaseException) -> str:
    return str(error) or "no answer in time"
