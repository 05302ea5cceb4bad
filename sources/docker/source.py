"""The source `docker`: reports the containers of Docker or Podman, and their changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final

from pipeline.base.clock import WallTimes
from pipeline.base.errors import ResponseError, TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import (
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    RunningContainer,
)
from sources.docker.containers import belongs_to_pod, running_container
from sources.docker.engine_api import MAX_RESPONSE, Client, Daemon, EngineApi
from sources.docker.options import Options

CONFIRM_SECONDS: Final = 30.0
"""Seconds between two confirmations: a list of the ids of the running containers. It shows that the
daemon responds, and finds a container of which the stream reported no event."""

_MOMENTS: Final = "moments"
_MAX_PENDING: Final = 1_000
"""How many changed containers wait; if there are more, all are listed again."""


class DockerSource:
    """Follows the daemon's events; implements `pipeline.component.contracts.Source`.

    A run ends when the connection is lost. The next run lists all containers again, after it has
    opened the stream, so that no change is missed.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, ctx: SourceContext) -> None:
        """Report containers until cancelled.

        Raises:
            TransientError: the daemon cannot be reached, or the connection was lost.
        """
        # Kept over restarts, so that unchanged containers keep the same instants.
        moments = ctx.restart_state.setdefault(_MOMENTS, WallTimes(ctx.clock.now))
        assert isinstance(moments, WallTimes)  # noqa: S101 - only this source writes it
        options = self._options
        async with await asyncio.to_thread(client, options) as http:
            api = EngineApi(http)
            daemon = await api.daemon()
            async with api.changes() as changes:
                follower = _Follower(ctx, api, daemon, moments, options.max_age.ns)
                await follower.relist()
                text = "connected to %s %s on %s; it runs %d containers"
                ctx.log.info(
                    text, daemon.runtime, daemon.version, options.socket, len(follower.known)
                )
                await follower.follow(changes)
        raise TransientError(f"{options.socket}: the daemon closed the stream of events")


def client(options: Options) -> AbstractAsyncContextManager[Client]:
    """Return an HTTP client of the daemon. It imports the library only if it is used."""
    from pipeline.net.unix_http import UnixHttp  # noqa: PLC0415

    return UnixHttp(options.socket, timeout=float(options.timeout), most=MAX_RESPONSE)


class _Follower:
    """Reports the containers of one connection.

    Attributes:
        known: the running containers by id.
    """

    def __init__(
        self, ctx: SourceContext, api: EngineApi, daemon: Daemon, moments: WallTimes, good_ns: int
    ) -> None:
        self.known: dict[str, RunningContainer] = {}
        self._of_pods: set[str] = set()
        self._refused: set[str] = set()
        self._ctx = ctx
        self._api = api
        self._daemon = daemon
        self._moments = moments
        self._good_ns = good_ns

    async def relist(self, changed: frozenset[str] = frozenset()) -> None:
        """List the running containers, and emit all of them.

        Args:
            changed: containers to read again although they are known.

        Raises:
            TransientError: the daemon cannot be reached, or describes none of its containers.
        """
        listed = await self._api.running(self._daemon.runtime)
        for container_id in self.known.keys() - listed:
            del self.known[container_id]
        self._of_pods &= listed
        self._refused &= listed
        unknown = listed - self.known.keys() - self._of_pods
        for container_id in sorted(unknown | (listed & changed)):
            await self._read(container_id)
        if self._refused and not self.known:
            # The daemon is ill: no containers would mean that all GPUs are free.
            raise TransientError("the daemon can describe none of its containers")
        await self._ctx.emit(ContainersReplaced(tuple(self.known.values()), self._good_ns))

    async def follow(self, changes: AsyncIterator[str]) -> None:
        """Emit changes until the stream ends, and confirm all containers at intervals."""
        pending: dict[str, None] = {}
        wake = asyncio.Event()
        receiving = asyncio.create_task(_receive(changes, pending, wake))
        confirming = asyncio.create_task(_tick(self._ctx, pending, wake))
        try:
            while not receiving.done() or pending:
                await wake.wait()
                wake.clear()
                taken = frozenset(pending)
                pending.clear()
                if "" in taken:
                    await self.relist(taken - {""})
                    continue
                for container_id in sorted(taken):
                    await self._report(container_id)
            await receiving
        finally:
            for task in (receiving, confirming):
                task.cancel()
            await asyncio.gather(receiving, confirming, return_exceptions=True)

    async def _report(self, container_id: str) -> None:
        before = self.known.get(container_id)
        await self._read(container_id)
        now = self.known.get(container_id)
        if now is not None and now != before:
            await self._ctx.emit(ContainerStarted(now))
        elif now is None and before is not None:
            await self._ctx.emit(ContainerStopped(container_id))

    async def _read(self, container_id: str) -> None:
        """Read one container; one that is gone or has ended is not known any more."""
        try:
            described = await self._api.describe(container_id)
        except ResponseError as error:
            # It is known as before, until it is not listed any more.
            if container_id not in self._refused:
                self._refused.add(container_id)
                text = "container %s: %s; podgpu %s, and reads it again every %.0f s"
                done = "reports it as before" if container_id in self.known else "leaves it out"
                self._ctx.log.warning(text, container_id[:12], error, done, CONFIRM_SECONDS)
            return
        self._refused.discard(container_id)
        if described is not None and belongs_to_pod(described):
            self._of_pods.add(container_id)
        found = (
            None
            if described is None
            else running_container(described, self._daemon.runtime, self._moments)
        )
        self.known.pop(container_id, None)
        if found is not None and found.subject.container_id == container_id:
            self.known[container_id] = found


async def _receive(
    changes: AsyncIterator[str], pending: dict[str, None], wake: asyncio.Event
) -> None:
    try:
        async for container_id in changes:
            pending[container_id if len(pending) < _MAX_PENDING else ""] = None
            wake.set()
    finally:
        wake.set()


async def _tick(ctx: SourceContext, pending: dict[str, None], wake: asyncio.Event) -> None:
    while True:
        await ctx.clock.sleep(CONFIRM_SECONDS)
        pending[""] = None
        wake.set()
