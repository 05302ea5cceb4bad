"""What the components of one podgpu share, and how their tasks are waited for."""

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
from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.component.contracts import KubeApi
from pipeline.fields import FieldPlan
from pipeline.runtime.contexts import Inlet
from pipeline.runtime.publisher import Publisher


@dataclass(slots=True)
class Shared:
    """Made by the runtime, handed to those that run components.

    Attributes:
        group: every task of podgpu lives in it.
        kube: joins a session with an API server.
        node: the node's name, as the configuration in force has it.
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

    @property
    def accepted(self) -> AcceptedAnnotations:
        """Which annotations of pods count."""
        return self.publisher.accepted

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task under a name for people.

        Raises:
            CancelledError: the group ends, since one of its tasks has failed.
        """
        try:
            task = self.group.create_task(work, name=name)
        except RuntimeError:
            # The group takes no more tasks; whoever asks for one is about to be cancelled.
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
        """Wait for tasks to end; name and return those that are late."""
        waiting = list(tasks)
        if not waiting:
            return []
        _, late = await asyncio.wait(waiting, timeout=max(seconds, 0))
        for task in late:
            self.log.warning("%s did not stop within %.1f s", task.get_name(), seconds)
        return list(late)
