"""The order of jobs on the thread that calls NVML."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from pipeline.base.clock import SystemClock
from pipeline.model import NS
from sources.nvml.worker_pool import AnyJob, Job, Step, Steps, WorkerPool
from tests.sources.nvml.harness import until

CLOCK = SystemClock()


class Journal:
    """Records which steps ran, in order. A step with a gate waits for it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gates: dict[str, threading.Event] = {}

    def steps(self, name: str, count: int = 2) -> Steps:
        return (Step(f"{name}{at}", self._step(f"{name}{at}")) for at in range(count))

    def _step(self, name: str) -> Callable[[], None]:
        def do() -> None:
            self.done.append(name)
            if name in self.gates:
                self.gates[name].wait(10)

        return do


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(str)
    yield pool
    await pool.close(None, 0)


async def test_jobs_run_in_the_order_urgent_usual_idle(
    pool: WorkerPool,
) -> None:
    journal = Journal()
    jobs: list[AnyJob] = [
        Job(journal.steps("idle"), idle=True),
        Job(journal.steps("usual")),
        Job(journal.steps("urgent"), urgent=True),
    ]
    tasks = [asyncio.create_task(pool.run(job)) for job in jobs]
    await asyncio.sleep(0)
    pool.start(CLOCK, 5)
    # Jobs that were queued before the thread started run after the next new job.
    await pool.run(Job(journal.steps("none", 0), urgent=True))
    await asyncio.gather(*tasks)
    assert journal.done == ["urgent0", "urgent1", "usual0", "usual1", "idle0", "idle1"]


async def test_a_due_job_waits_for_at_most_one_step_of_an_idle_job(pool: WorkerPool) -> None:
    journal = Journal()
    gate = journal.gates["idle0"] = threading.Event()
    pool.start(CLOCK, 5)
    idle = asyncio.create_task(pool.run(Job(journal.steps("idle", 3), idle=True)))
    await until(lambda: journal.done == ["idle0"])
    usual = asyncio.create_task(pool.run(Job(journal.steps("usual"))))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(idle, usual)
    assert journal.done == ["idle0", "usual0", "usual1", "idle1", "idle2"]


@pytest.mark.slow
async def test_an_idle_job_runs_before_a_later_job_is_due(pool: WorkerPool) -> None:
    journal = Journal()
    pool.start(CLOCK, 5)
    due_ns = CLOCK.now().mono_ns + NS // 2
    later = asyncio.create_task(pool.run(Job(journal.steps("later"), due_ns=due_ns)))
    await asyncio.sleep(0)
    await pool.run(Job(journal.steps("idle"), idle=True))
    await later
    assert journal.done == ["idle0", "idle1", "later0", "later1"]


async def test_an_idle_job_can_be_prioritized(pool: WorkerPool) -> None:
    journal = Journal()
    gate = journal.gates["usual0"] = threading.Event()
    pool.start(CLOCK, 5)
    usual = asyncio.create_task(pool.run(Job(journal.steps("usual"))))
    await until(lambda: journal.done == ["usual0"])
    job: AnyJob = Job(journal.steps("idle"), idle=True)
    idle = asyncio.create_task(pool.run(job))
    await asyncio.sleep(0)
    pool.prioritize(job)
    gate.set()
    await asyncio.gather(idle, usual)
    pool.prioritize(job)
    assert journal.done == ["usual0", "idle0", "idle1", "usual1"], "an ended job does not run again"
