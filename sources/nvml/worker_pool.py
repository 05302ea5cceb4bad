"""The threads that call NVML: one that works, and at most one more that hangs in the driver.

A call into a broken driver may never return, and a thread cannot be ended from outside. So the work
is split into steps, each with one target (a GPU, or the driver itself). When a step exceeds the
deadline, its thread is abandoned: a new thread runs the remaining steps, and no step with that
target starts until the old thread has returned. The result of the old thread is discarded. If a
second thread hangs, the work ends with an error, since a third thread could hang too.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from pipeline.base.clock import Clock, SystemClock
from pipeline.base.errors import TransientError
from pipeline.model import NS, Instant

T = TypeVar("T")

SHUTDOWN = "nvmlShutdown"

PROGRESS_INTERVAL_NS: Final = NS // 4
"""How long results of a running job may wait until they are emitted. The holder of a device may
change meanwhile, and earlier readings would be attributed to the new holder. A round of eight GPUs
takes less time."""

Steps: TypeAlias = "Generator[Step, Any, None]"
"""Yields the steps of a job. The generator gets the result of each step. It gets None for a step
that was left out because its target hangs, that was abandoned, or that returned None."""


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of work for the thread.

    Attributes:
        target: where the step may hang: a GPU's uuid, or the name of a call.
        call: does the work.
        is_critical: whether no other step can run if this one hangs.
        is_collected: whether a result other than None is added to the results of the job.
    """

    target: str
    call: Callable[[], Any]
    is_critical: bool = False
    is_collected: bool = True


class Job(Generic[T]):
    """Steps that belong together, and their results.

    Attributes:
        steps: the steps that have not started. Any of the threads requests them, one at a time.
        answer: the result of the last step, which the generator of the steps gets.
        priority: 0 runs between the steps of other jobs; 2 runs only while no other job has a
            step that may start; 1 for any other job.
        due_ns: earliest start on the monotonic clock; 0 for immediately.
        started: when its first step started.
        ended: when its last step ended.
    """

    def __init__(
        self,
        steps: Steps,
        *,
        urgent: bool = False,
        idle: bool = False,
        due_ns: int = 0,
    ) -> None:
        self.steps = steps
        self.answer: Any = None
        self.priority = 0 if urgent else 2 if idle else 1
        self.due_ns = due_ns
        self.started: Instant | None = None
        self.ended: Instant | None = None
        self.error: BaseException | None = None
        self.results: list[T] = []
        self.done = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def take(self) -> list[T]:
        """Return the results since the last call. Safe while the job runs: the thread appends."""
        results = self.results[:]
        del self.results[: len(results)]
        return results

    def finish(self) -> None:
        """Wake the coroutine that waits for the job. Safe to call from any thread."""
        # RuntimeError: the loop has ended, and no coroutine waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.done.set)


AnyJob: TypeAlias = Job[Any]


@dataclass(slots=True)
class _Worker:
    """The state of a thread.

    Attributes:
        retired: whether the thread was abandoned or must end.
        step: the running step; None between steps.
        since_ns: when the running step started, on the monotonic clock.
    """

    retired: bool = False
    step: Step | None = None
    since_ns: int = 0


class WorkerPool:
    """Runs jobs on one thread. It outlives the runs of its source, since a thread may hang.

    Args:
        describe: returns the name of a target for log messages.
    """

    def __init__(self, describe: Callable[[str], str]) -> None:
        self._describe = describe
        self._changed = threading.Condition()
        self._jobs: list[AnyJob] = []
        self._worker: _Worker | None = None
        self._stuck: dict[str, _Worker] = {}
        self._clock: Clock = SystemClock()
        self._deadline_ns = 0

    @property
    def stuck(self) -> frozenset[str]:
        """The targets in which a thread hangs now."""
        with self._changed:
            return frozenset(self._stuck)

    def start(self, clock: Clock, deadline: float) -> None:
        """Start a thread for a run of the source.

        Raises:
            TransientError: two threads hang already.
        """
        self._clock = clock
        self._deadline_ns = round(deadline * NS)
        with self._changed:
            self._stop_worker()  # of a run that was cancelled while it ended
            if len(self._stuck) > 1:
                raise self._too_many_stuck()
            self._start_worker()

    def _start_worker(self) -> None:
        worker = self._worker = _Worker()
        threading.Thread(target=self._work, args=(worker,), name="podgpu-nvml", daemon=True).start()

    def _too_many_stuck(self) -> TransientError:
        targets = " and in ".join(self._describe(target) for target in self._stuck)
        return TransientError(
            f"driver calls hang in {targets}: reset these GPUs or restart the node; "
            "sampling continues once one of the calls returns"
        )

    async def run(
        self, job: AnyJob, on_progress: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Run a job to its end.

        Args:
            job: the job.
            on_progress: called each time `PROGRESS_INTERVAL_NS` have passed and the job has not
                ended.

        Raises:
            TransientError: a critical step hangs, or threads hang in two targets.
            Exception: what a step raised.
        """
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        # The thread waits for the due time: waking the event loop for it would cost more than many
        # a round does.
        now_ns = self._clock.now().mono_ns
        start_ns = max(now_ns, job.due_ns)
        progress_ns = start_ns + PROGRESS_INTERVAL_NS
        check_ns = start_ns + self._deadline_ns
        while not job.done.is_set():
            until_ns = check_ns if on_progress is None else min(check_ns, progress_ns)
            try:
                async with asyncio.timeout((until_ns - now_ns) / NS):
                    await job.done.wait()
            except TimeoutError:
                now_ns = self._clock.now().mono_ns
                check_ns = now_ns + self._check_deadline()
                if on_progress is not None and now_ns >= progress_ns:
                    await on_progress()
                    now_ns = self._clock.now().mono_ns
                    progress_ns = now_ns + PROGRESS_INTERVAL_NS
        if job.error is not None:
            raise job.error

    def prioritize(self, job: AnyJob) -> None:
        """Make a background job urgent, if it has not ended."""
        with self._changed:
            job.priority = 0
            self._changed.notify()

    def _check_deadline(self) -> int:
        """Abandon the thread if it exceeds the deadline; return the ns until the next check."""
        with self._changed:
            worker = self._worker
            if worker is None or worker.step is None:
                return self._deadline_ns
            elapsed_ns = self._clock.now().mono_ns - worker.since_ns
            if elapsed_ns < self._deadline_ns:
                return self._deadline_ns - elapsed_ns
            step = worker.step
            self._abandon(worker, step)
            if step.is_critical:
                self._fail_all(
                    TransientError(
                        f"{self._describe(step.target)} has not returned for "
                        f"{self._deadline_ns / NS:g} s: the driver hangs, see the kernel log "
                        "(dmesg); reset the GPUs or restart the node"
                    )
                )
            elif len(self._stuck) > 1:
                self._fail_all(self._too_many_stuck())
            else:
                self._start_worker()
        return self._deadline_ns

    def _abandon(self, worker: _Worker, step: Step) -> None:
        worker.retired = True
        self._stuck[step.target] = worker
        self._worker = None

    def _fail_all(self, error: TransientError) -> None:
        for job in self._jobs:
            job.error = error
            job.finish()
        self._jobs.clear()

    def _work(self, worker: _Worker) -> None:
        while (work := self._next_step(worker)) is not None:
            job, step = work
            result: object = None
            error: BaseException | None = None
            try:
                result = step.call()
            except BaseException as caught:  # noqa: BLE001 -- handed to the loop, raised there
                error = caught
            with self._changed:
                if worker.retired:
                    # The result is discarded.
                    if self._stuck.get(step.target) is worker:
                        del self._stuck[step.target]
                    return
                worker.step = None
                if error is not None:
                    job.error = error
                    self._end(job)
                elif result is not None:
                    job.answer = result
                    if step.is_collected:
                        job.results.append(result)

    def _next_step(self, worker: _Worker) -> tuple[AnyJob, Step] | None:
        """Return the worker's next step, waiting for one; None if the worker must end."""
        with self._changed:
            while not worker.retired:
                wait: float | None = None
                for job in sorted(self._jobs, key=lambda job: job.priority):
                    now = self._clock.now()
                    if job.due_ns > now.mono_ns:
                        wait = (job.due_ns - now.mono_ns) / NS
                    elif (step := self._next(job)) is not None:
                        job.started = job.started or now
                        worker.step, worker.since_ns = step, now.mono_ns
                        return job, step
                    else:
                        job.ended = now
                        self._end(job)
                self._changed.wait(wait)
        return None

    def _next(self, job: AnyJob) -> Step | None:
        answer, job.answer = job.answer, None
        try:
            step = job.steps.send(answer)
            while step.target in self._stuck:
                step = next(job.steps)
        except StopIteration:
            return None
        except Exception as caught:  # noqa: BLE001 -- handed to the loop, raised there
            job.error = caught
            return None
        return step

    def _end(self, job: AnyJob) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        job.finish()

    async def close(self, last: Callable[[], None] | None, within: float) -> None:
        """Drop all jobs, make one last call, and stop the thread; abandon it if still in a call.

        The last call is left out if no thread runs, or if any thread hangs.

        Args:
            last: the call; None for none.
            within: how long to wait for the call, in seconds.
        """
        with self._changed:
            self._jobs.clear()
            idle = self._worker is not None and not self._stuck
        if last is not None and idle:
            job: AnyJob = Job(step for step in [Step(SHUTDOWN, last)])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self.run(job)
        with self._changed:
            self._jobs.clear()
            self._stop_worker()

    def _stop_worker(self) -> None:
        """Stop the thread, if there is one; abandon it if it is in a call."""
        worker = self._worker
        if worker is not None:
            if worker.step is not None:
                self._abandon(worker, worker.step)
            worker.retired = True
            self._worker = None
        self._changed.notify_all()
