"""Starts, reloads and stops podgpu: sinks start first, then the join, then sources."""

import asyncio
import logging
import socket
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.schema import Config
from pipeline.base.channels import Channel
from pipeline.base.clock import Clock, SystemClock
from pipeline.base.errors import ComponentError, PermanentError
from pipeline.base.hint_board import HintBoard
from pipeline.base.logs import ROOT
from pipeline.base.telemetry import FamilyPoints, Telemetry
from pipeline.base.version import VERSION
from pipeline.component.code_permissions import (
    NOTHING,
    Allowed,
    libraries,
    names_kubeconfig,
    plugins,
)
from pipeline.component.contracts import KubeApi
from pipeline.component.registry import OWN_FAMILIES
from pipeline.counters.list_follower import DEFAULT_TEXT, KEPT_TEXT, CountersFollower
from pipeline.counters.list_source import ListUnavailableError
from pipeline.counters.plan_builder import default_plan
from pipeline.fields import FieldPlan
from pipeline.host.memory_footprint import settle
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.model import ClockTicked, Envelope
from pipeline.runtime.config_reload import ReloadAttempts, changes
from pipeline.runtime.contexts import Inlet, Shared
from pipeline.runtime.health import Status
from pipeline.runtime.http_service import HttpService
from pipeline.runtime.lifecycle import Lifecycle, unless
from pipeline.runtime.publisher import Publisher, Tap
from pipeline.runtime.sink_set import SinkSet
from pipeline.runtime.source_set import SourceSet
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.endpoints import StatusPages
from pipeline.status_page.last_day_usage import LastDayCache
from pipeline.status_page.topology_endpoint import TopologyPages

if TYPE_CHECKING:
    from pipeline.kube.sessions import Sessions

_INBOX = 1024
_SILENCE = 2.0
"""Seconds without any event after which `ClockTicked` is sent, so that the join gets the time."""

_FILES = 3.0
"""Seconds for the check of kubeconfigs, because a file server may not respond."""

_CANCEL = 1.0
"""Seconds that a cancelled start or reload has to end."""


class Runtime:
    """A running podgpu: its components and what they share.

    Args:
        config: the configuration to run.
        clock: the source of all times; None for the system's clock.
        taps: called with each envelope before the join gets it.
        allowed: code that may run if the configuration names it.

    Attributes:
        config: the current configuration.
        attempts: counts reloads and records their results.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        taps: tuple[Tap, ...] = (),
        allowed: Allowed = NOTHING,
    ):
        clock = clock or SystemClock()
        log = logging.getLogger(ROOT)
        self.config = config
        self._allowed = allowed
        self._inbox: Channel[Envelope] = Channel(_INBOX)
        hints, telemetry, node = HintBoard(), Telemetry(clock.now, OWN_FAMILIES), node_name(config)
        self._publisher = Publisher(self._inbox, hints, log)
        self._publisher.taps.extend(taps)
        self._status = Status(self._publisher, self._inbox, telemetry, clock)
        self._topology = TopologyPages(lambda: self._publisher.latest)
        self._status_page = StatusPages(clock.now, self._known)
        listeners = ListenerRegistry(
            node,
            self._status.healthy,
            self._status.ready,
            {**self._status_page.pages, **self._topology.pages},
            self._status_page.front,
        )
        self._serving = HttpService(listeners)
        self._shared = Shared(
            clock=clock,
            plan=default_plan(config.counters),
            telemetry=telemetry,
            inlet=Inlet(self._inbox, clock),
            hints=hints,
            publisher=self._publisher,
            group=asyncio.TaskGroup(),
            log=log,
            kube=self._connect,
            http=listeners.listen,
            collect=self._status.collect,
            node=node,
        )
        self._sessions: Sessions | None = None
        self._sources = SourceSet(self._shared)
        self._sinks = SinkSet(self._shared)
        # Only set while podgpu runs, because its queries are tasks of podgpu.
        self._last_day: LastDayCache | None = None
        self.attempts = ReloadAttempts(telemetry)
        self._keeper = self._make_keeper(config)
        self._keeping: asyncio.Task[None] | None = None
        self._lifecycle = Lifecycle()

    @property
    def plan(self) -> FieldPlan:
        """The fields that are currently read and exported."""
        return self._shared.plan

    def telemetry(self) -> list[FamilyPoints]:
        """Return the current values of podgpu's own metrics."""
        return self._shared.collect()

    def _known(self) -> StatusInput:
        shared, publisher = self._shared, self._publisher
        return StatusInput(
            node=shared.node,
            version=VERSION,
            now=shared.clock.now(),
            ready=self._status.ready(),
            snapshot=publisher.latest,
            sources=publisher.join.sources(),
            holders_known=publisher.join.holders_known,
            sinks={name: sink.kind for name, sink in self.config.sinks.items()},
            telemetry=self._status.collect(),
            troubles=shared.telemetry.problems,
            last_day=self._last_day.known() if self._last_day is not None else None,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; then stop the components, and return.

        Raises:
            PermanentError: a sink, a listener or the counters list cannot work with this
                configuration, or the configuration names code that is not allowed.
            ExceptionGroup: a source cannot work (`PermanentError`), or there is a bug.
        """
        try:
            # A file system may not respond.
            if await unless(stop, self._prepare(), seconds=_CANCEL):
                await self._run(stop)
        finally:
            self._lifecycle.close()
            await self._serving.leave()
            self._topology.close()

    async def _run(self, stop: asyncio.Event) -> None:
        async with self._shared.group:
            self._sinks.start()
            self._last_day = LastDayCache(
                self._shared.clock, self._sinks.usage_histories, self._shared.spawn
            )
            joining = self._shared.spawn(self._publisher.run(), "join")
            ticking = self._shared.spawn(self._tick(), "clock")
            try:
                if await unless(stop, self._start_sources(), seconds=_CANCEL):
                    self._keep(self._keeper)
                    settle()
                    self._lifecycle.started.set()
                    await stop.wait()
                await self._stop(joining, ticking)
            finally:
                # The reason may be the failure of a component.
                self._lifecycle.close()

    async def _start_sources(self) -> None:
        # Before sources start, the join gets the usage accounts that a sink has stored.
        if (found := await self._sinks.stored_usage()) is not None:
            await self._shared.inlet.put(*found)
        for order, component in enumerate(self.config.sources.values()):
            await self._sources.start(component, order, fatal=True)

    async def _prepare(self) -> None:
        await self._check_code_allowed(self.config)
        self._shared.plan = await _read_list(self._keeper, DEFAULT_TEXT) or self._shared.plan
        await self._serving.enter(self.config.http)
        await self._sinks.enter(self.config, node_name(self.config))

    async def _stop(self, joining: asyncio.Task[None], ticking: asyncio.Task[None]) -> None:
        """Stop sources, then the join, then sinks. Sinks get what is left of `shutdown_grace`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + float(self.config.shutdown_grace)
        if changing := self._lifecycle.close():
            # A reload may wait for a sink that does not stop, or for a disk.
            await asyncio.wait(changing, timeout=_CANCEL)
        if self._keeping is not None:
            self._keeping.cancel()
        if self._last_day is not None:
            self._last_day.close()
            self._last_day = None
        await self._sources.stop()
        ticking.cancel()
        self._inbox.close()
        await asyncio.wait({joining})
        await self._sinks.stop(max(0.0, deadline - loop.time()))
        # A cancelled reload may have left a sink that it was stopping.
        self._shared.cancel()

    async def reload(self, config: Config) -> bool:
        """Apply a changed configuration. Components that have not changed keep running.

        Returns:
            Whether the new configuration is in use. If a sink, a listener or the counters list
            cannot work with it, or it names code that is not allowed, podgpu logs the reason and
            continues with the previous configuration.

        Raises:
            CancelledError: podgpu stops.
        """
        async with self._lifecycle.change():
            return await self._succeeds("configuration", self._reload(config))

    async def _succeeds(self, what: str, change: Coroutine[Any, Any, None]) -> bool:
        """Make a change, and return True; if it fails, log the reason, and return False."""
        try:
            await change
        except ComponentError as error:
            self._shared.log.error(
                "%s not reloaded: %s; podgpu continues with the previous %s", what, error, what
            )
            return False
        return True

    async def _reload(self, config: Config) -> None:
        await self._check_code_allowed(config)
        keeper, plan, usable = self._keeper, self._shared.plan, True
        if config.counters != self.config.counters:
            keeper = self._make_keeper(config)
            listed = await _read_list(keeper, KEPT_TEXT)
            plan, usable = listed or plan, listed is not None
        await self._exchange(config, plan)
        if keeper is not self._keeper:
            self.attempts.note("counters", taken=usable)
            self._keep(keeper)

    async def _check_code_allowed(self, config: Config) -> None:
        """Check that podgpu may run all code that the configuration names.

        Raises:
            PermanentError: the configuration names code that is not allowed.
        """
        found = libraries(config, self._allowed)
        if names_kubeconfig(config):
            # After a timeout, the component that uses the kubeconfig checks it again.
            with suppress(TimeoutError):
                async with asyncio.timeout(_FILES):
                    found += await asyncio.to_thread(plugins, config, self._allowed)
        if found:
            problems = [f"{each.path}: {each.message}; {each.hint}" for each in found]
            raise PermanentError("\n".join(problems))

    async def _exchange(self, config: Config, plan: FieldPlan) -> None:
        before = self._shared.plan
        difference = changes(self.config, config, replanned=plan != before)
        self._shared.plan = plan
        try:
            async with self._serving.changed(config.http):
                await self._sinks.reload(difference.sinks, self.config, config, node_name(config))
        except ComponentError:
            self._shared.plan = before
            raise
        self.config = config
        self._shared.node = node_name(config)
        self._serving.rename(self._shared.node)
        await self._sources.reload(difference, config)

    def reread(self) -> bool:
        """Request that the counters list is read again; return False if none is configured."""
        return self._keeper.ask()

    def _make_keeper(self, config: Config) -> CountersFollower:
        count = partial(self.attempts.count, "counters")
        return CountersFollower(config.counters, self._connect, self._shared.log, count)

    def _keep(self, keeper: CountersFollower) -> None:
        """Follow the counters list of this follower instead of the previous one."""
        if self._keeping is not None:
            self._keeping.cancel()
        self._keeper = keeper
        self._keeping = self._shared.spawn(keeper.follow(self._replan), "counters")

    async def _replan(self, plan: FieldPlan, asked: bool) -> None:
        """Apply a changed plan. Components that do not use the plan keep running."""
        async with self._lifecycle.change():
            before = self._shared.plan
            if plan == before:
                self.attempts.note_unchanged("counters")
                if asked:
                    self._shared.log.info("counters list unchanged")
                return
            done = await self._succeeds("counters list", self._exchange(self.config, plan))
            self.attempts.count("counters", "done" if done else "failed")
            if done:
                changed = describe_plan_change(before, plan)
                self._shared.log.info("counters list reloaded: %s", changed)

    def _connect(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        if self._sessions is None:
            # Imported only if a component uses an API server.
            from pipeline.kube.sessions import Sessions  # noqa: PLC0415

            self._sessions = Sessions(plugins=self._allowed.everything)
        return self._sessions.session(kubeconfig)

    async def _tick(self) -> None:
        """Send `ClockTicked` after two seconds without any event; measure the loop's delays.

        The status page remembers the newest snapshot at each turn.
        """
        shared = self._shared
        while True:
            silent = shared.inlet.last.seconds_until(shared.clock.now())
            if silent >= _SILENCE:
                await shared.inlet.put("", "clock", ClockTicked())
            self._status_page.remember(self._publisher.latest)
            await shared.inlet.lateness.measure()


async def _read_list(keeper: CountersFollower, text: str) -> FieldPlan | None:
    try:
        return await keeper.first(text)
    except ListUnavailableError as error:
        raise PermanentError(f"counters: {error}") from error


def describe_plan_change(before: FieldPlan, plan: FieldPlan) -> str:
    """Return, as text, how many fields the new plan has, and how many were added and removed."""
    old, new = ({field.name for field in each.fields} for each in (before, plan))
    return f"{len(new)} fields: {len(new - old)} added, {len(old - new)} removed"


def node_name(config: Config) -> str:
    """Return the node's name: the configured one, or else the host name."""
    return config.node or socket.gethostname()
