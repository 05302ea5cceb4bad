"""Whose turn it is on the thread that calls NVML."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from pipeline.base.clock import SystemClock
from pipeline.model import NS
from sources.nvml.worker_pool import Job, Step, WorkerPool
from tests.sources.nvml.harness import until

CLOCK = SystemClock()


class Notes:
    """What was done, in order; a step may be held up."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gates: dict[str, threading.Event] = {}

    def steps(self, name: str, count: int = 2) -> Iterable[Step]:
        return [Step(f"{name}{at}", self._doing(f"{name}{at}")) for at in range(count)]

    def _doing(self, name: str) -> Callable[[], None]:
        def do() -> None:
            self.done.append(name)
            if name in self.gates:
                self.gates[name].wait(10)

        return do


@pytest.fixture
async def crew() -> AsyncIterator[WorkerPool]:
    made = WorkerPool(str)
    yield made
    await made.close(None, 0)


async def test_the_urgent_one_then_the_usual_one_then_the_one_that_fills_the_time(
    crew: WorkerPool,
) -> None:
    notes = Notes()
    jobs = [
        Job(notes.steps("idle"), idle=True),
        Job(notes.steps("usual")),
        Job(notes.steps("urgent"), urgent=True),
    ]
    tasks = [asyncio.create_task(crew.run(job)) for job in jobs]
    await asyncio.sleep(0)
    crew.start(CLOCK, 5)
    # Jobs that were there before the thread need a word.
    await crew.run(Job((), urgent=True))
    await asyncio.gather(*tasks)
    assert notes.done == ["urgent0", "urgent1", "usual0", "usual1", "idle0", "idle1"]


async def test_a_job_that_becomes_due_waits_for_one_step_at_most(crew: WorkerPool) -> None:
    notes = Notes()
    gate = notes.gates["idle0"] = threading.Event()
    crew.start(CLOCK, 5)
    idle = asyncio.create_task(crew.run(Job(notes.steps("idle", 3), idle=True)))
    await until(lambda: notes.done == ["idle0"])
    usual = asyncio.create_task(crew.run(Job(notes.steps("usual"))))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(idle, usual)
    assert notes.done == ["idle0", "usual0", "usual1", "idle1", "idle2"]


async def test_the_time_before_a_job_is_due_is_filled(crew: WorkerPool) -> None:
    notes = Notes()
    crew.start(CLOCK, 5)
    due_ns = CLOCK.now().mono_ns + NS // 2
    later = asyncio.create_task(crew.run(Job(notes.steps("later"), due_ns=due_ns)))
    await asyncio.sleep(0)
    await crew.run(Job(notes.steps("idle"), idle=True))
    await later
    assert notes.done == ["idle0", "idle1", "later0", "later1"]


async def test_a_job_that_fills_the_time_can_be_hurried(crew: WorkerPool) -> None:
    notes = Notes()
    gate = notes.gates["usual0"] = threading.Event()
    crew.start(CLOCK, 5)
    usual = asyncio.create_task(crew.run(Job(notes.steps("usual"))))
    await until(lambda: notes.done == ["usual0"])
    job = Job(notes.steps("idle"), idle=True)
    idle = asyncio.create_task(crew.run(job))
    await asyncio.sleep(0)
    crew.prioritize(job)
    gate.set()
    await asyncio.gather(idle, usual)
    crew.prioritize(job)
    assert notes.done == ["usual0", "idle0", "idle1", "usual1"], "and one that ended stays ended"
