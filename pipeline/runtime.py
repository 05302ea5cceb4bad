"""Starts, stops and reloads the whole: sinks first, then the join, then sources; and back."""

import asyncio
import logging
import socket
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from config.schema import Config
from config.types import ListenAddress
from pipeline.channels import Channel
from pipeline.clock import Clock, SystemClock
from pipeline.contexts import Inlet
from pipeline.contracts import HttpMounts, KubeApi
from pipeline.errors import ComponentError
from pipeline.fields import FieldPlan
from pipeline.footprint import settle
from pipeline.hints import HintBoard
from pipeline.logs import ROOT
from pipeline.model import ClockTicked, Envelope
from pipeline.publishing import Publisher, Tap
from pipeline.reloading import changes
from pipeline.shared import Shared
from pipeline.sinkset import SinkSet
from pipeline.sourceset import SourceSet
from pipeline.status import Status
from pipeline.telemetry import FamilyPoints, Telemetry
from pipeline.version import VERSION

if TYPE_CHECKING:
    from pipeline.http import Listeners
    from pipeline.kube.sessions import Sessions

_INBOX = 1024
_SILENCE = 2.0
"""Seconds without any event after which the clock speaks."""


class Runtime:
    """One podgpu: its components and everything they share.

    Args:
        config: what to run.
        clock: where all times come from.
        taps: called with each envelope before the join sees it.
    """

    def __init__(self, config: Config, *, clock: Clock | None = None, taps: tuple[Tap, ...] = ()):
        clock = clock or SystemClock()
        log = logging.getLogger(ROOT)
        self._config = config
        self._inbox: Channel[Envelope] = Channel(_INBOX)
        hints, telemetry = HintBoard(), Telemetry()
        self._publisher = Publisher(self._inbox, hints, log)
        self._publisher.taps.extend(taps)
        self._shared = Shared(
            clock=clock,
            plan=FieldPlan(),
            telemetry=telemetry,
            inlet=Inlet(self._inbox, clock),
            hints=hints,
            publisher=self._publisher,
            group=asyncio.TaskGroup(),
            log=log,
            kube=self._connect,
            node=node_name(config),
        )
        self._status = Status(self._publisher, self._inbox, telemetry, clock)
        self._listeners: Listeners | None = None
        self._sessions: Sessions | None = None
        self._sources = SourceSet(self._shared)
        self._sinks = SinkSet(self._shared, self._status.collect, self._listen)
        self._lock = asyncio.Lock()
        self._reloading: asyncio.Task[object] | None = None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config

    def telemetry(self) -> list[FamilyPoints]:
        """Return podgpu's own metrics as they are now."""
        return self._status.collect()

    def count_reload(self, result: str) -> None:
        """Count an attempt to take over a changed configuration."""
        self._shared.telemetry.add("podgpu_config_reloads_total", 1, (("result", result),))

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then drain and return.

        Raises:
            PermanentError: a sink can't be had with this configuration.
            ExceptionGroup: a source can't (`PermanentError`), or there is a bug.
        """
        if not await self._enter(stop):
            return
        async with self._shared.group:
            self._sinks.start()
            joining = self._shared.spawn(self._publisher.run(), "join")
            ticking = self._shared.spawn(self._tick(), "clock")
            for order, component in enumerate(self._config.sources.values()):
                await self._sources.start(component, order, fatal=True)
            settle()
            await stop.wait()
            await self._stop(joining, ticking)

    async def _enter(self, stop: asyncio.Event) -> bool:
        """Enter the sinks, unless podgpu is to stop meanwhile: a file system may not answer."""
        entering = asyncio.ensure_future(self._sinks.enter(self._config, node_name(self._config)))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if entering.done():
                entering.result()
                return True
            return False
        finally:
            stopping.cancel()
            if entering.cancel():
                await asyncio.wait({entering}, timeout=1)

    async def _stop(self, joining: asyncio.Task[None], ticking: asyncio.Task[None]) -> None:
        """Stop with the flow, all in `shutdown_grace`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + float(self._config.shutdown_grace)
        if self._reloading is not None:
            # It may be waiting for a sink that never stops, or for a disk.
            self._reloading.cancel()
            await asyncio.wait({self._reloading}, timeout=1)
        await self._sources.stop()
        ticking.cancel()
        self._inbox.close()
        await asyncio.wait({joining})
        await self._sinks.stop(max(0.0, deadline - loop.time()))

    async def reload(self, config: Config) -> bool:
        """Take over a changed configuration; unchanged components go on running.

        Returns:
            Whether it is in force. If a new sink can't acquire what it needs, everything becomes
            again as it was.
        """
        async with self._lock:
            self._reloading = asyncio.current_task()
            try:
                return await self._reload(config)
            finally:
                self._reloading = None

    async def _reload(self, config: Config) -> bool:
        difference = changes(self._config, config)
        with ExitStack() as stack:
            if self._listeners is not None:
                stack.enter_context(self._listeners.hold())
            try:
                await self._sinks.reload(difference.sinks, self._config, config, node_name(config))
            except ComponentError as error:
                self._shared.log.error("the changed configuration is not taken over: %s", error)
                return False
        self._config = config
        self._shared.node = node_name(config)
        if self._listeners is not None:
            self._listeners.node = self._shared.node
        await self._sources.reload(difference, config)
        return True

    def _listen(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        if self._listeners is None:
            # An HTTP server costs 10 MB: not without somebody who wants one.
            from pipeline.http import Listeners  # noqa: PLC0415

            self._listeners = Listeners(
                node=node_name(self._config),
                version=VERSION,
                health=self._status.healthy,
                ready=self._status.ready,
            )
        return self._listeners.listen(address)

    def _connect(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        if self._sessions is None:
            # Not without somebody who wants to talk to an API server.
            from pipeline.kube.sessions import Sessions  # noqa: PLC0415

            self._sessions = Sessions()
        return self._sessions.join(kubeconfig)

    async def _tick(self) -> None:
        """Let the join know of time when no source does."""
        shared = self._shared
        while True:
            silent = shared.inlet.last.seconds_until(shared.clock.now())
            if silent >= _SILENCE:
                await shared.inlet.put("", "clock", ClockTicked())
                silent = 0
            await shared.clock.sleep(_SILENCE - silent)


def node_name(config: Config) -> str:
    """Return the node's name: the configured one, else the machine's."""
    return config.node or socket.gethostname()
