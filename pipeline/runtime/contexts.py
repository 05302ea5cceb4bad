"""What all components of one podgpu share, and what the runtime provides to each of them."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from config.schema import Component
from config.value_types import ListenAddress
from pipeline.base.channels import Channel, ChannelClosedError
from pipeline.base.clock import Clock
from pipeline.base.hint_board import HintBoard
from pipeline.base.logs import ROOT
from pipeline.base.telemetry import FamilyPoints, Meter, Telemetry
from pipeline.component.contracts import HttpMounts, KubeApi
from pipeline.fields import FieldPlan
from pipeline.model import NS, Envelope, Event, Instant, Snapshot
from pipeline.runtime.publisher import Publisher

_PULSE: Final = 0.5
"""Duration of the timer, in seconds."""

_TOLERATED_NS: Final = NS // 10
"""Lateness of the timer that does not count as a delay, in nanoseconds."""

_KEPT_NS: Final = 10 * NS
"""For how long a delay counts after its end. Sources catch up in less time."""


class LoopDelay:
    """Measures how long the event loop was busy, by the lateness of a timer.

    Args:
        clock: the runtime's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer_started: Instant | None = None
        self._delays: deque[tuple[int, int]] = deque()

    async def measure(self) -> None:
        """Run the timer once. If it ends late, record its whole duration as a delay."""
        self._timer_started = self._clock.now()
        await self._clock.sleep(_PULSE)
        now = self._clock.now()
        if delay := self._delay(now):
            self._delays.append((now.mono_ns, delay))
        self._timer_started = None

    def delay_ns(self, now: Instant) -> int:
        """Return the sum of the delays that ended in the last ten seconds, in nanoseconds.

        A delay is the whole duration of a timer that was late. A late timer that still runs is
        included. Sources had less time to report by up to this sum.
        """
        while self._delays and now.mono_ns - self._delays[0][0] > _KEPT_NS:
            self._delays.popleft()
        return sum(delay for _, delay in self._delays) + self._delay(now)

    def _delay(self, now: Instant) -> int:
        if self._timer_started is None:
            return 0
        # All of the time counts, because it is unknown which part of it the loop was busy.
        passed = now.mono_ns - self._timer_started.mono_ns
        return passed if passed > _PULSE * NS + _TOLERATED_NS else 0


class Inlet:
    """Puts envelopes into the inbox and numbers them, so that all events have one order.

    Attributes:
        last: the time of the newest envelope.
        lateness: measures the delays of the event loop.
    """

    def __init__(self, inbox: Channel[Envelope], clock: Clock) -> None:
        self.last = clock.now()
        self.lateness = LoopDelay(clock)
        self._inbox = inbox
        self._clock = clock
        self._seq = 0

    async def put(self, source: str, kind: str, event: Event) -> None:
        """Put an event of a source into the inbox; wait while it is full."""
        await self.relay(Envelope(source, kind, 0, self._clock.now(), event))

    async def relay(self, envelope: Envelope) -> None:
        """Put an envelope into the inbox, with a new number and the event loop's delay.

        Wait while the inbox is full. Discard the envelope if the inbox is closed.
        """
        self._seq += 1
        self.last = envelope.at
        late_ns = self.lateness.delay_ns(self._clock.now())
        try:
            await self._inbox.put(replace(envelope, seq=self._seq, loop_delay_ns=late_ns))
        except ChannelClosedError:
            # Happens only while podgpu stops: the source is cancelled soon.
            return


@dataclass(slots=True)
class Shared:
    """What all components share. The runtime creates it.

    Attributes:
        group: the task group of podgpu's tasks.
        kube: opens a shared session with an API server.
        http: opens a shared HTTP listener.
        collect: returns the current values of podgpu's own metrics.
        node: the node's name according to the current configuration.
        restart_states: what components keep when they restart, by role, name and kind.
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
    http: Callable[[ListenAddress], AbstractAsyncContextManager[HttpMounts]]
    collect: Callable[[], list[FamilyPoints]]
    node: str
    restart_states: dict[tuple[str, str, str], dict[str, object]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task. Messages use its name.

        Raises:
            CancelledError: the task group is ending, because one of its tasks has failed.
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
        """Cancel all tasks that `spawn` started and that still run."""
        for task in self._tasks:
            task.cancel()

    async def wait(
        self,
        tasks: Iterable[asyncio.Task[None]],
        seconds: float,
        consequence: str = "podgpu no longer waits for it",
    ) -> list[asyncio.Task[None]]:
        """Wait for tasks to end; log and return those that still run.

        Args:
            tasks: the tasks.
            seconds: how long to wait.
            consequence: what happens to a task that still runs then, for messages.
        """
        waiting = list(tasks)
        if not waiting:
            return []
        _, late = await asyncio.wait(waiting, timeout=max(seconds, 0))
        for task in late:
            self.log.warning(
                "%s did not stop within %.1f s; %s", task.get_name(), seconds, consequence
            )
        return list(late)


class RunningComponent:
    """Implements `SourceContext` and `SinkContext`.

    Attributes:
        is_running: returns whether a source with this name runs.
        has_emitted: whether the source has emitted or relayed an event.
    """

    def __init__(
        self,
        shared: Shared,
        component: Component,
        node: str,
        is_running: Callable[[str], bool] = lambda _: False,
    ) -> None:
        role, name, kind = component.role, component.name, component.kind
        self.name, self.kind, self.node = name, kind, node
        self.clock, self.plan = shared.clock, shared.plan
        self.log = logging.getLogger(f"{ROOT}.{role}s.{name}")
        self.meter = Meter(shared.telemetry, role, name)
        self.restart_state = shared.restart_states.setdefault((role, name, kind), {})
        self.kube, self.http, self.telemetry = shared.kube, shared.http, shared.collect
        self.hints, self.accepted = shared.hints.subscribe, shared.publisher.accepted
        self.is_running = is_running
        self.has_emitted = False
        self._shared = shared

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot, or None before the first."""
        return self._shared.publisher.latest

    async def emit(self, event: Event) -> None:
        """Send an event to the join under this source's name; wait while the inbox is full."""
        self.has_emitted = True
        await self._shared.inlet.put(self.name, self.kind, event)

    async def relay(self, envelope: Envelope) -> None:
        """Send another source's event to the join; if a source of that name runs, add a suffix."""
        self.has_emitted = True
        name = envelope.source
        if self.is_running(name):
            name = f"{name}@{self.name}"
        await self._shared.inlet.relay(replace(envelope, source=name, relayed_by=self.name))
