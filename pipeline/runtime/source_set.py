"""The set of running sources: starts, reloads and stops them."""

import asyncio
from dataclasses import dataclass

from config.schema import Component, Config
from pipeline.component.registry import build_source, source_added
from pipeline.model import SourceRemoved
from pipeline.runtime.config_reload import Changes
from pipeline.runtime.contexts import RunningComponent, Shared
from pipeline.runtime.supervision import supervise_source

_STOP = 2.0
"""Seconds that a source has to stop. After that, podgpu logs it and continues without waiting."""

_HANDOVER = 10.0
"""Maximum of seconds for which reports of a removed source stay valid, if the new sources have not
reported."""

_SETTLE = 1.0
"""Seconds between the first reports of the new sources and the removal of the old source: the first
report may be the list of devices, without readings."""


@dataclass(slots=True)
class _Running:
    component: Component
    task: asyncio.Task[None]


class SourceSet:
    """Runs the sources, by name.

    A source keeps its `restart_state` when it restarts after an error or a reload, until it is
    removed or gets another kind.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._running: dict[str, _Running] = {}
        self._leaving: dict[str, _Running] = {}

    async def start(self, component: Component, order: int, *, fatal: bool = False) -> None:
        """Start a source.

        Args:
            component: the source's configuration.
            order: position of the source in the configuration, from 0.
            fatal: podgpu has just started: a `PermanentError` before the first event ends podgpu.
        """
        shared, name = self._shared, component.name
        await self._cancel_removal(component)
        is_running = self._running.__contains__
        context = RunningComponent(shared, component, shared.node, is_running)
        source = build_source(component.kind, component.options)
        await self._announce(component, order)
        task = shared.spawn(supervise_source(source, context, fatal=fatal), f"source {name}")
        self._running[name] = _Running(component, task)

    async def _announce(self, component: Component, order: int) -> None:
        added = source_added(component.kind, component.options, order)
        await self._shared.inlet.put(component.name, component.kind, added)

    async def reload(self, difference: Changes, config: Config) -> None:
        """Stop removed and changed sources, and start new and changed ones.

        Reports of a removed source stay valid until the started sources have reported, or for ten
        seconds.
        """
        stopped = [self._running.pop(n) for n in difference.sources if n in self._running]
        await self._end(stopped)
        removed: list[Component] = []
        for running in stopped:
            old = running.component
            new = config.sources.get(old.name)
            if new is None:
                removed.append(old)
            elif new.kind != old.kind:
                await self._remove(old)
        started: list[str] = []
        for order, (name, component) in enumerate(config.sources.items()):
            if name in difference.sources:
                await self.start(component, order)
                started.append(name)
            elif difference.reordered:
                await self._announce(component, order)
        for component in removed:
            if started:
                leaving = self._shared.spawn(
                    self._hand_over(component, started), f"removal of source {component.name}"
                )
                self._leaving[component.name] = _Running(component, leaving)
            else:
                await self._remove(component)

    async def _hand_over(self, component: Component, successors: list[str]) -> None:
        """Remove a source after the started sources have reported, or after ten seconds."""
        clock = self._shared.clock
        start = clock.now()
        while start.seconds_until(clock.now()) < _HANDOVER:
            known = self._shared.publisher.join.sources()
            if all(name not in known or known[name].has_reported for name in successors):
                await clock.sleep(_SETTLE)
                break
            await clock.sleep(0.1)
        del self._leaving[component.name]
        await self._remove(component)

    async def _cancel_removal(self, component: Component) -> None:
        """Cancel the delayed removal of an earlier source of the same name."""
        if (leaving := self._leaving.pop(component.name, None)) is not None:
            leaving.task.cancel()
            if leaving.component.kind != component.kind:
                await self._remove(leaving.component)

    async def _remove(self, component: Component) -> None:
        await self._shared.inlet.put(component.name, component.kind, SourceRemoved())
        self._shared.restart_states.pop(("source", component.name, component.kind), None)
        if component.name not in self._running:
            self._shared.telemetry.forget(("source", component.name))

    async def stop(self) -> None:
        """Stop all sources. Log those that do not end in time."""
        for leaving in self._leaving.values():
            leaving.task.cancel()
        await self._end(list(self._running.values()))

    async def _end(self, running: list[_Running]) -> None:
        for source in running:
            source.task.cancel()
        await self._shared.wait([source.task for source in running], _STOP)
