"""Emits events for the reported containers."""

from config.value_types import Duration
from pipeline.component.contracts import SourceContext
from pipeline.model import (
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    RunningContainer,
)
from sources.nri.container_table import ContainerChanges


class EventEmitter:
    """Emits the changes of one connection as events.

    Attributes:
        due: whether the full list has to be emitted again as a confirmation.

    Args:
        ctx: the source's context.
        max_age: how long the emitted events stay valid.
    """

    def __init__(self, ctx: SourceContext, max_age: Duration) -> None:
        self.due = False
        self._ctx = ctx
        self._max_age = max_age
        self._running: dict[str, RunningContainer] | None = None
        self._full_list: tuple[RunningContainer, ...] | None = None

    async def emit(self, changes: ContainerChanges, runtime: str) -> None:
        """Log the warnings and emit the changes, in their order.

        Args:
            changes: the changes.
            runtime: name and version of the runtime.
        """
        for text in changes.warnings:
            self._ctx.log.warning("%s", text)
        if changes.full_list is not None:
            self._running = {one.subject.container_id: one for one in changes.full_list}
            self._full_list = changes.full_list
            self._ctx.log.info(
                "connected to %s; it runs %d containers",
                runtime,
                len(changes.full_list),
            )
            self.due = True
        if self.due:
            await self._confirm()
        for key, container in changes.changes.items():
            await self._change(key, container)

    async def _change(self, key: str, container: RunningContainer | None) -> None:
        if self._running is None:  # there are no changes before the full list
            return
        self._full_list = None
        if container is None:
            self._running.pop(key, None)
            await self._ctx.emit(ContainerStopped(key))
        else:
            self._running[key] = container
            await self._ctx.emit(ContainerStarted(container))

    async def _confirm(self) -> None:
        self.due = False
        if self._running is None:
            return
        if self._full_list is None:
            self._full_list = tuple(self._running.values())
        await self._ctx.emit(ContainersReplaced(self._full_list, self._max_age.ns))
