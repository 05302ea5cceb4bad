"""Implementations of `SourceContext` and `SinkContext`."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from config.value_types import ListenAddress
from pipeline.base.channels import Channel, ChannelClosedError
from pipeline.base.clock import Clock
from pipeline.base.telemetry import FamilyPoints, Meter
from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.component.contracts import HttpMounts, KubeApi
from pipeline.fields import FieldPlan
from pipeline.model import Envelope, Event, Hint, Snapshot
from pipeline.runtime.loop_lag import LoopDelay


class Inlet:
    """Puts envelopes into the inbox and numbers them, so that all events have one order.

    Attributes:
        last: the time of the newest envelope.
        lateness: how busy the event loop was.
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
        """Put an envelope into the inbox, with a new number and the delay of the event loop."""
        self._seq += 1
        self.last = envelope.at
        late_ns = self.lateness.delay_ns(self._clock.now())
        try:
            await self._inbox.put(replace(envelope, seq=self._seq, loop_delay_ns=late_ns))
        except ChannelClosedError:
            # Happens only while podgpu stops: the source is cancelled soon.
            return


@dataclass(slots=True)
class RunningSource:
    """Implements `SourceContext`.

    Attributes:
        hints: iterates over the join's hints.
        is_running: whether a source with this name runs.
        kube: opens a shared session with an API server.
        has_emitted: the source has emitted or relayed an event.
    """

    name: str
    kind: str
    node: str
    clock: Clock
    plan: FieldPlan
    log: logging.Logger
    meter: Meter
    restart_state: dict[str, object]
    inlet: Inlet
    hints: Callable[[], AsyncIterator[Hint]]
    is_running: Callable[[str], bool]
    kube: Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]
    accepted: AcceptedAnnotations
    has_emitted: bool = False

    async def emit(self, event: Event) -> None:
        """Send an event to the join under this source's name."""
        self.has_emitted = True
        await self.inlet.put(self.name, self.kind, event)

    async def relay(self, envelope: Envelope) -> None:
        """Send another source's event to the join; if its name is in use here, add a suffix."""
        self.has_emitted = True
        name = envelope.source
        if self.is_running(name):
            name = f"{name}@{self.name}"
        await self.inlet.relay(replace(envelope, source=name, relayed_by=self.name))


@dataclass(slots=True)
class RunningSink:
    """Implements `SinkContext`.

    Attributes:
        latest: returns the newest snapshot.
        telemetry: returns the current values of podgpu's own metrics.
        http: opens a shared HTTP listener.
        kube: opens a shared session with an API server.
    """

    name: str
    node: str
    clock: Clock
    plan: FieldPlan
    log: logging.Logger
    meter: Meter
    latest: Callable[[], Snapshot | None]
    telemetry: Callable[[], list[FamilyPoints]]
    http: Callable[[ListenAddress], AbstractAsyncContextManager[HttpMounts]]
    kube: Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]
    restart_state: dict[str, object] = field(default_factory=dict)
