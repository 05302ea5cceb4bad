"""The sink `pods`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from pipeline.claiming import matcher
from pipeline.completeness import Completeness
from pipeline.contracts import KubeApi, SinkContext, SinkInbox
from pipeline.model import NS, Layout, Snapshot
from sinks.pods.agenda import Agenda
from sinks.pods.annotating import Annotator
from sinks.pods.holdings import wanted
from sinks.pods.options import Options

_PACE: Final = 0.1
"""Seconds from the beginning of one pod to that of the next."""

_LATER: Final = 10.0
"""Seconds until a pod is read again that others changed each time before we could."""


class PodsSink:
    """Keeps what pods hold in their annotations.

    Args:
        options: see `docs/sinks/pods.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._wants = matcher(options.resources)
        self._complete = Completeness(ctx.clock)
        self._agenda = Agenda()
        self._resources: frozenset[str] = frozenset()
        self._layout: Layout | None = None
        self._next_ns = 0
        self._stopping = False
        self._annotator = Annotator(ctx, lambda: self._stopping)
        self._leases = AsyncExitStack()
        self._api: KubeApi | None = None

    async def __aenter__(self) -> Self:
        """Join the session with the API server.

        Raises:
            TransientError: there are no credentials.
        """
        self._complete.begin()
        self._api = await self._leases.enter_async_context(self._ctx.kube(self._options.kubeconfig))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Leave the session. What was written stays."""
        self._api = None
        await self._leases.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Keep the annotations until the inbox ends.

        Raises:
            ApiError: the API server refused, or couldn't be reached.
        """
        self._stopping = False
        closing = asyncio.ensure_future(self._close(inbox))
        snapshots = aiter(inbox)
        coming = asyncio.ensure_future(_next(snapshots))
        latest = self._ctx.latest()
        # Whether the inbox has ended already is known once its tasks have begun.
        await asyncio.sleep(0)
        try:
            while True:
                if latest is not None:
                    self._take(latest)
                await self._work()
                waited = {coming} if self._stopping else {coming, closing}
                await asyncio.wait(
                    waited, timeout=self._rest(latest), return_when=asyncio.FIRST_COMPLETED
                )
                if coming.done():
                    latest = coming.result()
                    if latest is None:
                        return
                    coming = asyncio.ensure_future(_next(snapshots))
        finally:
            closing.cancel()
            coming.cancel()

    async def _close(self, inbox: SinkInbox) -> None:
        await inbox.wait_closed()
        self._stopping = True

    def _take(self, snapshot: Snapshot) -> None:
        """Work out what pods hold, once those who could name a holder have spoken."""
        if not self._complete.reached(snapshot) or snapshot.layout is self._layout:
            return
        self._layout = layout = snapshot.layout
        # What was of GPUs once is so for good: the kubelet may not be heard now.
        self._resources |= {name for name in layout.resources if self._wants(name)}
        if self._resources:
            self._agenda.take(wanted(layout.attributions.values(), self._resources))

    async def _work(self) -> None:
        """See to one pod, if it is time for that."""
        now = self._ctx.clock.now()
        if self._stopping or self._api is None or now.mono_ns < self._next_ns:
            return
        if (due := self._agenda.begin(now.mono_ns)) is None:
            return
        self._next_ns = now.mono_ns + round(_PACE * NS)
        place, what = due
        if await self._annotator.see_to(self._api, place, what):
            self._agenda.finish(place, what)
        else:
            self._agenda.put_off(place, self._ctx.clock.now().mono_ns + round(_LATER * NS))

    def _rest(self, latest: Snapshot | None) -> float | None:
        """Return how long there is nothing to do but wait for a snapshot."""
        if latest is None or self._stopping:
            return None
        if self._layout is None:
            return max(self._complete.left(), 0)
        now_ns = self._ctx.clock.now().mono_ns
        left = self._agenda.left(now_ns)
        return None if left is None else max(left, (self._next_ns - now_ns) / NS, 0)


async def _next(snapshots: AsyncIterator[Snapshot]) -> Snapshot | None:
    return await anext(snapshots, None)
