"""What all components of one podgpu share; starting their tasks and waiting for them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.base.clock import Clock
from pipeline.base.hint_board import HintBoard
from pipeline.base.telemetry import Telemetry
from pipeline.component.contracts import KubeApi
from pipeline.fields import FieldPlan
from pipeline.runtime.contexts import Inlet
from pipeline.runtime.publisher import Publisher


@dataclass(slots=True)
class Shared:
    """Created by the runtime; used to run components.

    Attributes:
        group: contains all tasks of podgpu.
        kube: opens a shared session with an API server.
        node: the node's name according to the current configuration.
    """

    clock: Clock
    plan: FieldPlan
    telemetry: Telemetry
    inlet: Inlet
    hints: HintBoard
    publisher: Publisher
    group: asyncio.TaskGroup
    log: logging.Logger
    kube: Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]
    node: str
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task; its name is used in messages.

        Raises:
            CancelledError: the group ends, because one of its tasks has failed.
        """
        try:
            task = self.group.create_task(work, name=name)
        except RuntimeError:
            # The group accepts no more tasks; the caller is cancelled soon.
            work.close()
            raise asyncio.CancelledError from None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel every task that still runs."""
        for task in self._tasks:
            task.cancel()

    async def wait(
        self, tasks: Iterable[asyncio.Task[None]], seconds: float
    ) -> list[asyncio.Task[None]]:
        """Wait for tasks to end; log and return those that do not end in time."""
        waiting = list(tasks)
        if not waiting:
            return []
        _, late = await asyncio.wait(waiting, timeout=max(seconds, 0))
        for task in late:
            self.log.warning("%s did not stop within %.1f s", task.get_name(), seconds)
        return list(late)
