"""The set of running sinks: starts, reloads and stops them."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from config.schema import Component, Config
from pipeline.base.channels import Channel
from pipeline.base.errors import ComponentError, PermanentError
from pipeline.base.logs import ROOT
from pipeline.component.contracts import Delivery, UsageHistory
from pipeline.component.registry import KINDS, build_sink
from pipeline.delivery.options import sends
from pipeline.model import Snapshot, TotalsRestored
from pipeline.runtime.contexts import RunningComponent, Shared
from pipeline.runtime.supervision import SinkRunner

_QUEUE = 64
_RESTORE_SECONDS = 12.0
"""Seconds that a sink has to return the stored usage; sources start after that."""

_CANCEL = 1.0
"""Seconds that a sink has to end after it is cancelled."""


@dataclass(slots=True)
class _Running:
    component: Component
    runner: SinkRunner
    task: asyncio.Task[None] | None = None


class SinkSet:
    """Runs the sinks, by name."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._running: dict[str, _Running] = {}

    async def enter(self, config: Config, node: str) -> None:
        """Enter all sinks, so that they acquire their resources before any of them runs.

        A sink with a transient error is entered again when it runs.

        Raises:
            PermanentError: a sink cannot work. Sinks that were entered before it are released.
        """
        try:
            for component in config.sinks.values():
                sink = self._make(component, node)
                await self._acquire(sink)
                self._running[component.name] = sink
        except BaseException:
            for sink in reversed(self._running.values()):
                await sink.runner.leave()
            self._running.clear()
            raise

    async def _acquire(self, sink: _Running) -> None:
        try:
            await sink.runner.enter()
        except ComponentError as error:
            raise PermanentError(f"sinks.{sink.component.name}: {error}") from error

    def usage_histories(self) -> Mapping[str, UsageHistory]:
        """Return the sinks that store usage, by name."""
        found = {name: running.runner.sink for name, running in self._running.items()}
        return {name: sink for name, sink in found.items() if isinstance(sink, UsageHistory)}

    async def stored_usage(self) -> tuple[str, str, TotalsRestored] | None:
        """Read the usage accounts that a sink stored in podgpu's previous run.

        Returns:
            Name and kind of the first sink that has accounts, and the accounts; None if none has.
        """
        for name, keeper in self.usage_histories().items():
            try:
                async with asyncio.timeout(_RESTORE_SECONDS):
                    restored = await keeper.stored_usage()
            except (ComponentError, TimeoutError) as error:
                why = str(error) or f"no response within {_RESTORE_SECONDS:g} s"
                log = logging.getLogger(f"{ROOT}.sinks.{name}")
                log.warning(
                    "could not read the stored usage accounts: %s; usage counters start at zero, "
                    "unless another ledger has the accounts",
                    why,
                )
                continue
            if restored is not None and restored.devices:
                return name, self._running[name].component.kind, restored
        return None

    def start(self) -> None:
        """Start the sinks that were entered."""
        for sink in self._running.values():
            self._start(sink)

    async def reload(self, names: tuple[str, ...], old: Config, new: Config, node: str) -> None:
        """Stop removed and changed sinks, then enter and start the new ones.

        All are stopped first, so that two sinks can exchange their files or paths. Call this while
        HTTP paths are kept served.

        Raises:
            ComponentError: a new sink cannot work. The previous sinks run again.
        """
        stopped = [self._running.pop(name) for name in names if name in self._running]
        await self.stop(float(old.shutdown_grace), stopped)
        for name in names:
            if _is_incompatible(old.sinks.get(name), new.sinks.get(name)):
                self._shared.telemetry.forget(("sink", name))
        try:
            for name in names:
                if name in new.sinks:
                    sink = self._make(new.sinks[name], node)
                    await self._acquire(sink)
                    self._start(sink)
        except ComponentError:
            new_sinks = [self._running.pop(name) for name in names if name in self._running]
            await self.stop(float(new.shutdown_grace), new_sinks)
            for sink in stopped:
                await self._restore(sink)
            self._forget(names, old)
            raise
        self._forget(names, new)

    async def _restore(self, sink: _Running) -> None:
        try:
            await sink.runner.enter()
        except ComponentError as error:
            # If its resource is permanently taken, the supervision of the sink reports it.
            self._shared.log.error("%s", error)
        sink.runner.outlet = self._outlet(sink.component)
        self._start(sink)

    def _forget(self, names: tuple[str, ...], config: Config) -> None:
        states = self._shared.restart_states
        for name in names:
            sink = config.sinks.get(name)
            if sink is None:
                self._shared.telemetry.forget(("sink", name))
            for key in [key for key in states if key[:2] == ("sink", name)]:
                if sink is None or sink.kind != key[2]:
                    del states[key]

    def _make(self, component: Component, node: str) -> _Running:
        context = RunningComponent(self._shared, component, node)
        sink = build_sink(component.kind, component.options, context)
        return _Running(component, SinkRunner(sink, context, self._outlet(component)))

    def _outlet(self, component: Component) -> Channel[Snapshot]:
        if KINDS["sink", component.kind].delivery is Delivery.LATEST:
            return Channel(1)
        return Channel(_QUEUE, on_drop=lambda lost: self._count(component, lost, "queue_full"))

    def _count(self, component: Component, lost: Snapshot, reason: str) -> None:
        labels = (("sink", component.name), ("reason", reason))
        self._shared.telemetry.add("podgpu_sink_dropped_total", len(lost.fresh), labels)

    def _start(self, sink: _Running) -> None:
        name = sink.component.name
        sink.task = self._shared.spawn(sink.runner.run(), f"sink {name}")
        self._running[name] = sink
        self._shared.publisher.outlets[name] = sink.runner.outlet

    async def stop(self, seconds: float, some: list[_Running] | None = None) -> None:
        """Let sinks flush and end, all or `some`; log and cancel those that do not end in time.

        For sinks that record history (`Delivery.QUEUE`), the fresh readings of snapshots that are
        left in the queue are counted as dropped.
        """
        sinks = list(self._running.values()) if some is None else some
        for sink in sinks:
            self._shared.publisher.outlets.pop(sink.component.name, None)
            sink.runner.outlet.close()
        tasks = [sink.task for sink in sinks if sink.task is not None]
        late = await self._shared.wait(tasks, seconds, "podgpu cancels it")
        for task in late:
            task.cancel()
        await self._shared.wait(late, _CANCEL)
        for sink in sinks:
            while (left := sink.runner.outlet.take_nowait()) is not None:
                if KINDS["sink", sink.component.kind].delivery is Delivery.QUEUE:
                    self._count(sink.component, left, "stopped")


def _is_incompatible(before: Component | None, after: Component | None) -> bool:
    """Return whether metrics of the old sink cannot continue for the new sink of the same name."""
    if before is None or after is None:
        return False
    return before.kind != after.kind or sends(before.options) != sends(after.options)
