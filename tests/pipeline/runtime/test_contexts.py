"""Tests of delays of the event loop: they must not make readings expire."""

import asyncio
import time

import pytest

from pipeline.base.channels import Channel
from pipeline.base.clock import SystemClock
from pipeline.join import Join
from pipeline.model import NS, ClockTicked, Envelope, Instant, Reading, SamplesTaken
from pipeline.runtime.contexts import Inlet, LoopDelay


class ManualClock:
    """A clock that only `sleep` moves: by its seconds plus the seconds that the loop is busy."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.busy = 0.0

    def now(self) -> Instant:
        return Instant(round(self.at * NS), round((1e9 + self.at) * NS))

    async def sleep(self, seconds: float) -> None:
        self.at += seconds + self.busy


@pytest.mark.parametrize(
    ("busy", "least", "most"), [(0.0, 0, 0), (0.05, 0, 0), (0.2, 0.2, 1), (30.0, 30, 31)]
)
async def test_a_delay_counts_for_ten_seconds(busy: float, least: float, most: float) -> None:
    clock = ManualClock()
    lateness = LoopDelay(clock)
    await lateness.measure()
    clock.busy = busy
    await lateness.measure()
    clock.busy = 0.0
    assert least <= lateness.delay_ns(clock.now()) / NS <= most
    for _ in range(19):
        await lateness.measure()
    assert least <= lateness.delay_ns(clock.now()) / NS <= most
    for _ in range(2):
        await lateness.measure()
    assert lateness.delay_ns(clock.now()) == 0


@pytest.mark.slow
async def test_a_delay_is_known_before_the_delayed_timer_runs() -> None:
    """Any task can run first after the delay, and emit an event."""
    clock = SystemClock()
    inbox: Channel[Envelope] = Channel(8)
    inlet = Inlet(inbox, clock)
    pulse = asyncio.create_task(inlet.lateness.measure())
    await asyncio.sleep(0)
    time.sleep(0.8)  # noqa: ASYNC251 - this is the delay
    await inlet.put("", "clock", ClockTicked())
    async for envelope in inbox:
        assert envelope.loop_delay_ns >= 0.8 * NS
        break
    pulse.cancel()


@pytest.mark.parametrize("late", [0.0, 2.0, 7.0])
def test_r9_a_reading_does_not_expire_because_the_loop_was_busy(late: float) -> None:
    join = Join(run="r")
    read = Instant(100 * NS, 10**18)

    def apply(event: SamplesTaken | ClockTicked, seconds: float, late: float = 0.0) -> None:
        at = Instant(read.mono_ns + round(seconds * NS), read.wall_ns + round(seconds * NS))
        join.apply(Envelope("s", "k", 1, at, event, loop_delay_ns=round(late * NS)))

    reading = Reading("GPU-a", "gpu_temperature_celsius", (), 50.0, None, read, 3 * NS)
    apply(SamplesTaken((reading,)), 0)
    apply(ClockTicked(), 3.0 + late, late)
    assert len(join._readings._latest) == 1
    apply(ClockTicked(), 3.1 + late, late)
    assert not join._readings._latest
