"""The threads that call NVML: one at work, and at most one more that is stuck in the driver.

A call into a sick driver may never return, and a thread can't be ended from outside. So the work
is cut into steps, each at one place (a GPU, or the driver itself). When a step takes longer than
the deadline, its thread is given up: a new thread does the remaining steps, and no step at that
place is begun until the old thread has come back, whose result is thrown away. A second thread
lost that way ends the work with an error, since a third would be one too many to leave lying about.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pipeline.base.clock import Clock, SystemClock
from pipeline.base.errors import TransientError
from pipeline.model import NS, Instant

SHUTDOWN = "nvmlShutdown"

PROGRESS_INTERVAL_NS: Final = NS // 4
"""For how long a job keeps what it has done to itself: the holder of a device may change meanwhile,
and what was read before would be taken for the new one's. A round of eight GPUs stays below it."""

NO_TARGET = ""
"""The place of a step that makes no call."""


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of work for the thread.

    Attributes:
        target: where it may get stuck: a GPU's uuid, or the name of a call.
        call: does it.
        accept: takes the result, on the same thread, unless the thread was given up meanwhile.
        is_critical: whether nothing else can go on if it gets stuck.
    """

    target: str
    call: Callable[[], Any]
    accept: Callable[[Any], None] | None = None
    is_critical: bool = False


class Job:
    """Steps that belong together. `accept` of one step may add to `steps`.

    Attributes:
        steps: those that are still to be begun.
        is_urgent: goes between the steps of another job.
        is_background: waits for every step of another job that may be begun: it fills the time
            between them.
        due_ns: not begun before that moment of the monotonic clock; 0 for at once.
        started: when its first step began.
        ended: when its last step ended.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        *,
        urgent: bool = False,
        idle: bool = False,
        due_ns: int = 0,
    ) -> None:
        self.steps = deque(steps)
        self.is_urgent = urgent
        self.is_background = idle
        self.due_ns = due_ns
        self.started: Instant | None = None
        self.ended: Instant | None = None
        self.error: BaseException | None = None
        self.done = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def finish(self) -> None:
        """Wake who waits for the job. Safe to call from any thread."""
        # RuntimeError: the loop has ended, and nobody waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.done.set)


class _Worker(threading.Thread):
    def __init__(self, pool: "WorkerPool") -> None:
        super().__init__(name="podgpu-nvml", daemon=True)
        self.pool = pool
        self.retired = False
        self.step: Step | None = None
        self.since_ns = 0

    def run(self) -> None:
        while (taken := self.pool.next_step(self)) is not None:
            job, step = taken
            result: object = None
            error: BaseException | None = None
            try:
                result = step.call()
            except BaseException as caught:  # noqa: BLE001 -- handed to the loop, raised there
                error = caught
            if not self.pool.complete_step(self, job, step, result, error):
                return


class WorkerPool:
    """Runs jobs on its thread; outlives the runs of its source, as stuck threads do.

    Args:
        describe: names a place for people.
    """

    def __init__(self, describe: Callable[[str], str]) -> None:
        self._describe = describe
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._urgent: deque[Job] = deque()
        self._idle: deque[Job] = deque()
        # The first that has a step to begin goes.
        self._queues = (self._urgent, self._jobs, self._idle)
        self._worker: _Worker | None = None
        self._stuck: dict[str, _Worker] = {}
        self._clock: Clock = SystemClock()
        self._deadline_ns = 0

    @property
    def stuck(self) -> frozenset[str]:
        """The places where a thread is stuck now."""
        with self._changed:
            return frozenset(self._stuck)

    def start(self, clock: Clock, deadline: float) -> None:
        """Get a thread.

        Raises:
            TransientError: two are stuck already.
        """
        self._clock = clock
        self._deadline_ns = round(deadline * NS)
        with self._changed:
            self._stop_worker()  # that of a run which was cut off while it ended
            if len(self._stuck) > 1:
                raise self._too_many_stuck()
            self._start_worker()

    def _start_worker(self) -> None:
        self._worker = _Worker(self)
        self._worker.start()

    def _too_many_stuck(self) -> TransientError:
        places = " and in ".join(self._describe(place) for place in self._stuck)
        return TransientError(
            f"the driver hangs in {places}: reset these GPUs or restart the node; "
            "sampling goes on once one of the calls returns"
        )

    async def run(self, job: Job, on_progress: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run a job to its end.

        Args:
            job: the job.
            on_progress: called each time that `PROGRESS_INTERVAL_NS` have passed and the job hasn't
                ended.

        Raises:
            TransientError: a vital step hangs, or threads are stuck at two places.
            Exception: what a step raised.
        """
        with self._changed:
            self._queues[0 if job.is_urgent else 2 if job.is_background else 1].append(job)
            self._changed.notify()
        # The thread itself waits for the due time: waking the loop for that would cost more than
        # many a round.
        now_ns = self._clock.now().mono_ns
        begin_ns = max(now_ns, job.due_ns)
        tell_ns = begin_ns + PROGRESS_INTERVAL_NS
        look_ns = begin_ns + self._deadline_ns
        while not job.done.is_set():
            until_ns = look_ns if on_progress is None else min(look_ns, tell_ns)
            try:
                async with asyncio.timeout((until_ns - now_ns) / NS):
                    await job.done.wait()
            except TimeoutError:
                now_ns = self._clock.now().mono_ns
                look_ns = now_ns + self._watch()
                if on_progress is not None and now_ns >= tell_ns:
                    await on_progress()
                    now_ns = self._clock.now().mono_ns
                    tell_ns = now_ns + PROGRESS_INTERVAL_NS
        if job.error is not None:
            raise job.error

    def prioritize(self, job: Job) -> None:
        """Let a job that fills the time go as an urgent one, if it hasn't ended."""
        with self._changed:
            if job in self._idle:
                self._idle.remove(job)
                self._urgent.append(job)
                self._changed.notify()

    def _watch(self) -> int:
        """Give the thread up if it is past the deadline; return when to look again, in ns."""
        with self._changed:
            worker = self._worker
            if worker is None or worker.step is None:
                return self._deadline_ns
            spent = self._clock.now().mono_ns - worker.since_ns
            if spent < self._deadline_ns:
                return self._deadline_ns - spent
            step = worker.step
            self._abandon(worker, step)
            if step.is_critical:
                self._fail_all(
                    TransientError(
                        f"{self._describe(step.target)} hangs for more than "
                        f"{self._deadline_ns / NS:g} s: the driver is stuck, see the kernel log "
                        "(dmesg); a reset of the GPUs or a restart of the node mends it"
                    )
                )
            elif len(self._stuck) > 1:
                self._fail_all(self._too_many_stuck())
            else:
                self._start_worker()
        return self._deadline_ns

    def _abandon(self, worker: _Worker, step: Step) -> None:
        worker.retired = True
        if step.target != NO_TARGET:
            self._stuck[step.target] = worker
        self._worker = None

    def _fail_all(self, error: TransientError) -> None:
        for jobs in self._queues:
            for job in jobs:
                job.error = error
                job.finish()
            jobs.clear()

    def next_step(self, worker: _Worker) -> tuple[Job, Step] | None:
        """Return the worker's next step, waiting for one; None if it is to end."""
        with self._changed:
            while not worker.retired:
                wait: float | None = None
                for jobs in self._queues:
                    while jobs:
                        job, now = jobs[0], self._clock.now()
                        if job.due_ns > now.mono_ns:
                            wait = (job.due_ns - now.mono_ns) / NS
                            break
                        step = self._next(job)
                        if step is None:
                            jobs.popleft()
                            job.ended = now
                            job.finish()
                            continue
                        job.started = job.started or now
                        worker.step, worker.since_ns = step, now.mono_ns
                        return job, step
                self._changed.wait(wait)
        return None

    def _next(self, job: Job) -> Step | None:
        while job.steps:
            step = job.steps.popleft()
            if step.target not in self._stuck:
                return step
        return None

    def complete_step(
        self, worker: _Worker, job: Job, step: Step, result: object, error: BaseException | None
    ) -> bool:
        """Take a worker's result; False if it was given up and is to end."""
        with self._changed:
            if worker.retired:
                if self._stuck.get(step.target) is worker:
                    del self._stuck[step.target]
                return False
            worker.step = None
            try:
                if error is None and step.accept is not None:
                    step.accept(result)
            except Exception as caught:  # noqa: BLE001 -- handed to the loop, raised there
                error = caught
            if error is not None:
                job.error = error
                for jobs in self._queues:
                    if job in jobs:
                        jobs.remove(job)
                job.finish()
        return True

    async def close(self, last: Callable[[], None] | None, within: float) -> None:
        """Drop all jobs, do one last call unless a thread is stuck, and let the thread go.

        Args:
            last: the call; None for none.
            within: how long that may take altogether, in seconds.
        """
        with self._changed:
            for jobs in self._queues:
                jobs.clear()
            idle = self._worker is not None and not self._stuck
        if last is not None and idle:
            job = Job([Step(SHUTDOWN, last)])
            with self._changed:
                self._jobs.append(job)
                self._changed.notify()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await job.done.wait()
        with self._changed:
            self._jobs.clear()
            self._stop_worker()

    def _stop_worker(self) -> None:
        """Let the thread go, if there is one; if it is in a call, it counts as stuck there."""
        worker = self._worker
        if worker is not None:
            if worker.step is not None:
                self._abandon(worker, worker.step)
            worker.retired = True
            self._worker = None
        self._changed.notify_all()
