"""Starts, stops and reloads the whole: sinks first, then the join, then sources; and back."""

import asyncio
import logging
import socket
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.schema import Component, Config
from config.types import ListenAddress
from pipeline.channels import Channel
from pipeline.clock import Clock, SystemClock
from pipeline.contexts import Inlet, RunningSink, RunningSource
from pipeline.contracts import Delivery, HttpMounts
from pipeline.errors import ComponentError
from pipeline.fields import FieldPlan
from pipeline.footprint import settle
from pipeline.hints import HintBoard
from pipeline.logs import ROOT
from pipeline.model import ClockTicked, Envelope, Snapshot, SourceAdded, SourceRemoved
from pipeline.publishing import Publisher, Tap
from pipeline.registry import ENTRIES, build_sink, build_source
from pipeline.reloading import Changes, changes
from pipeline.status import Status
from pipeline.supervision import SinkRunner, supervise_source
from pipeline.telemetry import Meter, Telemetry
from pipeline.version import VERSION

if TYPE_CHECKING:
    from pipeline.http import Listeners

_INBOX = 1024
_QUEUE = 64
_SILENCE = 2.0
"""Seconds without any event after which the clock speaks."""
_STOP_SOURCE = 2.0
"""Seconds that a source has to stop before it is named and left behind."""


@dataclass(slots=True)
class _Source:
    component: Component
    task: asyncio.Task[None]


@dataclass(slots=True)
class _Sink:
    component: Component
    runner: SinkRunner
    task: asyncio.Task[None]


class Runtime:
    """One podgpu: its components and everything they share.

    Args:
        config: what to run.
        clock: where all times come from.
        taps: called with each envelope before the join sees it.
    """

    def __init__(self, config: Config, *, clock: Clock | None = None, taps: tuple[Tap, ...] = ()):
        self._config = config
        self._clock = clock or SystemClock()
        self._log = logging.getLogger(ROOT)
        self._inbox: Channel[Envelope] = Channel(_INBOX)
        self._inlet = Inlet(self._inbox, self._clock)
        self._hints = HintBoard()
        self._telemetry = Telemetry()
        self._plan = FieldPlan()
        self._publisher = Publisher(self._inbox, self._hints, self._log)
        self._publisher.taps.extend(taps)
        self._status = Status(self._publisher, self._inbox, self._telemetry, self._clock)
        self._listeners: Listeners | None = None
        self._sources: dict[str, _Source] = {}
        self._sinks: dict[str, _Sink] = {}
        self._kept: dict[tuple[str, str], dict[str, object]] = {}
        self._reloading = asyncio.Lock()
        self._group = asyncio.TaskGroup()

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config

    def count_reload(self, result: str) -> None:
        """Count an attempt to take over a changed configuration."""
        self._telemetry.add("podgpu_config_reloads_total", 1, (("result", result),))

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then drain and return.

        Raises:
            PermanentError: a component can't be had with this configuration; raised at the start,
                or inside an `ExceptionGroup` from a source's first run.
        """
        runners: list[tuple[Component, SinkRunner]] = []
        try:
            for component in self._config.sinks.values():
                runner = self._sink_runner(component, self._config)
                await runner.enter()
                runners.append((component, runner))
        except ComponentError:
            for _, runner in reversed(runners):
                await runner.leave()
            raise
        async with self._group:
            for component, runner in runners:
                self._start_sink(component, runner)
            joining = self._spawn(self._publisher.run(), "join")
            ticking = self._spawn(self._tick(), "clock")
            for order, component in enumerate(self._config.sources.values()):
                await self._start_source(component, order, fatal=True)
            settle()
            await stop.wait()
            async with self._reloading:
                await self._stop(joining, ticking)

    async def reload(self, config: Config) -> bool:
        """Take over a changed configuration; unchanged components go on running.

        Returns:
            Whether it is in force. If a new sink can't acquire what it needs, everything stays, or
            becomes again, as it was.
        """
        async with self._reloading:
            difference = changes(self._config, config)
            with ExitStack() as stack:
                if self._listeners is not None:
                    stack.enter_context(self._listeners.hold())
                try:
                    await self._reload_sinks(difference, config)
                except ComponentError as error:
                    self._log.error("the changed configuration is not taken over: %s", error)
                    return False
            self._config = config
            await self._reload_sources(difference, config)
            return True

    async def _reload_sinks(self, difference: Changes, config: Config) -> None:
        old = self._config
        done: list[str] = []
        try:
            for name in difference.sinks:
                done.append(name)
                await self._replace_sink(name, config)
        except ComponentError:
            for name in reversed(done):
                await self._replace_sink(name, old)
            raise
        for name in difference.sinks:
            if name not in config.sinks:
                self._telemetry.forget(("sink", name))

    async def _replace_sink(self, name: str, config: Config) -> None:
        running = self._sinks.pop(name, None)
        if running is not None:
            await self._stop_sinks([running], config)
        component = config.sinks.get(name)
        if component is not None:
            runner = self._sink_runner(component, config)
            await runner.enter()
            self._start_sink(component, runner)

    async def _reload_sources(self, difference: Changes, config: Config) -> None:
        for name in difference.sources:
            running = self._sources.pop(name, None)
            if running is None:
                continue
            await self._stop_sources([running])
            component = config.sources.get(name)
            if component is None or component.kind != running.component.kind:
                await self._inlet.put(name, running.component.kind, SourceRemoved())
            if component is None:
                self._telemetry.forget(("source", name))
        for order, (name, component) in enumerate(config.sources.items()):
            if name in difference.sources:
                await self._start_source(component, order, fatal=False)
            elif difference.reordered:
                await self._inlet.put(name, component.kind, SourceAdded(order))

    def _sink_runner(self, component: Component, config: Config) -> SinkRunner:
        name = component.name
        meter = Meter(self._telemetry, "sink", name)
        context = RunningSink(
            name=name,
            node=node_name(config),
            clock=self._clock,
            plan=self._plan,
            log=logging.getLogger(f"{ROOT}.sinks.{name}"),
            meter=meter,
            snapshot=lambda: self._publisher.latest,
            collect=self._status.collect,
            listen=self._listen,
        )
        entry = ENTRIES["sink", component.kind]
        outlet: Channel[Snapshot]
        if entry.delivery is Delivery.LATEST:
            outlet = Channel(1)
        else:

            def lost(snapshot: Snapshot) -> None:
                meter.add("podgpu_sink_dropped_total", len(snapshot.fresh), reason="queue_full")

            outlet = Channel(_QUEUE, on_drop=lost)
        return SinkRunner(build_sink(component.kind, component.options, context), context, outlet)

    def _listen(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        if self._listeners is None:
            # An HTTP server costs 16 MB: not without somebody who wants one.
            from pipeline.http import Listeners  # noqa: PLC0415

            self._listeners = Listeners(
                node=node_name(self._config),
                version=VERSION,
                health=self._status.healthy,
                ready=self._status.ready,
            )
        return self._listeners.listen(address)

    def _start_sink(self, component: Component, runner: SinkRunner) -> None:
        task = self._spawn(runner.run(), f"sink {component.name}")
        self._sinks[component.name] = _Sink(component, runner, task)
        self._publisher.outlets[component.name] = runner.outlet

    async def _start_source(self, component: Component, order: int, *, fatal: bool) -> None:
        name = component.name
        context = RunningSource(
            name=name,
            kind=component.kind,
            clock=self._clock,
            plan=self._plan,
            log=logging.getLogger(f"{ROOT}.sources.{name}"),
            meter=Meter(self._telemetry, "source", name),
            kept=self._kept.setdefault((name, component.kind), {}),
            inlet=self._inlet,
            board=self._hints,
        )
        source = build_source(component.kind, component.options)
        await self._inlet.put(name, component.kind, SourceAdded(order))
        task = self._spawn(supervise_source(source, context, fatal=fatal), f"source {name}")
        self._sources[name] = _Source(component, task)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._group.create_task(work, name=name)

    async def _tick(self) -> None:
        """Let the join know of time when no source does."""
        while True:
            silent = self._inlet.last.seconds_until(self._clock.now())
            if silent >= _SILENCE:
                await self._inlet.put("", "clock", ClockTicked())
                silent = 0
            await self._clock.sleep(_SILENCE - silent)

    async def _stop(self, joining: asyncio.Task[None], ticking: asyncio.Task[None]) -> None:
        await self._stop_sources(list(self._sources.values()))
        ticking.cancel()
        self._inbox.close()
        await asyncio.wait({joining})
        await self._stop_sinks(list(self._sinks.values()), self._config)

    async def _stop_sources(self, running: list[_Source]) -> None:
        for source in running:
            source.task.cancel()
        await self._wait([source.task for source in running], _STOP_SOURCE)

    async def _stop_sinks(self, running: list[_Sink], config: Config) -> None:
        for sink in running:
            self._publisher.outlets.pop(sink.component.name, None)
            sink.runner.outlet.close()
        late = await self._wait([sink.task for sink in running], float(config.shutdown_grace))
        for task in late:
            task.cancel()
        await self._wait(late, 1.0)

    async def _wait(
        self, tasks: list[asyncio.Task[None]], seconds: float
    ) -> list[asyncio.Task[None]]:
        """Wait for tasks to end; name and return those that are late."""
        if not tasks:
            return []
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            self._log.warning("%s did not stop within %.1f s", task.get_name(), seconds)
        return list(late)


def node_name(config: Config) -> str:
    """Return the node's name: the configured one, else the machine's."""
    return config.node or socket.gethostname()
