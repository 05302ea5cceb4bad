"""Write recordings, and play them in virtual time."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from pipeline.model import NS, Envelope, Event
from pipeline.recording import Header, RecordingWriter
from sources.replay.options import Options
from sources.replay.source import ReplaySource
from tests.support.contexts import FakeSourceContext, LoopClock
from tests.support.nodes import START, at

Recorded: TypeAlias = tuple[float, str, str, Event]
"""The second of an event, the name and the kind of its source, and the event."""


def record(path: Path, events: Iterable[Recorded]) -> Path:
    with RecordingWriter(path, Header("0.1.0", "node-9", START)) as writer:
        for seq, (second, source, kind, event) in enumerate(events, 1):
            writer.write(Envelope(source, kind, seq, at(second), event))
    return path


class Listener(FakeSourceContext):
    """Record when each event was relayed."""

    def __init__(self) -> None:
        super().__init__("replay", LoopClock())
        self.start = self.clock.now()
        self.relayed_after: list[float] = []

    async def relay(self, envelope: Envelope) -> None:
        self.relayed_after.append(self.start.seconds_until(self.clock.now()))
        await super().relay(envelope)

    def wall(self, second: float) -> int:
        return self.start.wall_ns + round(second * NS)


async def play(path: Path | str, **options: Any) -> Listener:
    ctx = Listener()
    await ReplaySource(Options(path=str(path), **options)).run(ctx)
    return ctx


async def play_for(path: Path, seconds: float, **options: Any) -> Listener:
    ctx = Listener()
    running = asyncio.create_task(ReplaySource(Options(path=str(path), **options)).run(ctx))
    await asyncio.sleep(seconds)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return ctx
