"""The source `slurm`: reports the jobs on this node, and their changes."""

import asyncio
from dataclasses import dataclass
from typing import Final

from pipeline.base.clock import WallTimes
from pipeline.base.errors import TransientError
from pipeline.base.safe_text import line
from pipeline.component.contracts import SourceContext
from pipeline.files.file_watch import Watcher
from pipeline.model import NS, ContainersReplaced, RunningContainer, SourceLost
from sources.slurm import job_cgroups
from sources.slurm.job_cgroups import JobCgroups
from sources.slurm.job_query import ask
from sources.slurm.job_record import setting, units_per_gpu
from sources.slurm.jobs import NodeFacts, running_job
from sources.slurm.options import Options
from sources.slurm.slurm_commands import SlurmCommands, SlurmError, UnknownJobError

EMPTY_SECONDS: Final = 60.0
"""Seconds after which a job whose cgroup has no process has ended."""

_MOMENTS: Final = "moments"
_MAX_WAIT_SECONDS: Final = 300.0
"""Maximum time between two questions about a job that Slurm does not know."""


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A job of which Slurm could not be asked, or which it does not know as running.

    Attributes:
        reason: why it could not be asked; empty if Slurm does not know it.
        attempts: how often it was asked.
        again_ns: when it is asked again, on the monotonic clock.
    """

    reason: str
    attempts: int
    again_ns: int


class SlurmSource:
    """Follows the cgroups of jobs; implements `pipeline.component.contracts.Source`.

    Slurm is asked once about each job. Known jobs stay while slurmctld is down.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._slurm = SlurmCommands(float(options.timeout))
        self._here: NodeFacts | None = None
        self._known: dict[tuple[str, int], RunningContainer] = {}
        self._unanswered: dict[tuple[str, int], _Unanswered] = {}
        self._empty_since: dict[tuple[str, int], int] = {}
        self._emitted: ContainersReplaced | None = None
        self._emitted_ns = 0
        self._fault = ""

    async def run(self, ctx: SourceContext) -> None:
        """Report jobs until cancelled.

        Raises:
            TransientError: the cgroups cannot be read, or Slurm did not answer at the first start.
        """
        # Kept over reloads, so that unchanged jobs keep the same instants.
        moments = ctx.restart_state.setdefault(_MOMENTS, WallTimes(ctx.clock.now))
        assert isinstance(moments, WallTimes)  # noqa: S101 - only this source writes it
        root = self._options.cgroups
        self._emitted = None
        with Watcher(root, folders=lambda: job_cgroups.folders(root)) as watcher:
            while True:
                watcher.open()
                watcher.forget()
                start_ns = ctx.clock.now().mono_ns
                found = await self._read(watcher)
                watcher.log_state(ctx.log)
                here = self._here or await self._learn(ctx, found)
                is_complete = await self._update(ctx, found, here, moments)
                took_ns = ctx.clock.now().mono_ns - start_ns
                if is_complete:
                    await watcher.wait(float(self._options.interval))
                # Jobs that start and end all the time take at most half of a CPU core.
                await ctx.clock.sleep(took_ns / NS)

    async def _read(self, watcher: Watcher) -> JobCgroups:
        root = self._options.cgroups

        def read() -> JobCgroups:
            watcher.arm()
            return job_cgroups.read(root, self._options.node_name)

        try:
            return await asyncio.to_thread(read)
        except OSError as error:
            text = f"{error.filename or root}: {error.strerror or error}"
            raise TransientError(f"{text}; mount the host's cgroups, or set cgroups") from error

    async def _learn(self, ctx: SourceContext, found: JobCgroups) -> NodeFacts:
        """Ask for the name of the cluster, and for the shards of the node's GPUs."""
        options = self._options
        if len(found.nodes) > 1:
            names = " and ".join(found.nodes)
            raise TransientError(f"this host has jobs of the nodes {names}; set node_name to one")
        node = options.node_name or "".join(found.nodes) or ctx.node.partition(".")[0]
        try:
            cluster = setting(await self._slurm.config(), "ClusterName")
            units = units_per_gpu(await self._slurm.node(node))
        except SlurmError as error:
            text = f"{error}; podgpu asks again; set node_name if Slurm calls this node otherwise"
            raise TransientError(text) from error
        ctx.log.info("following the jobs of node %s in cluster %s", node, cluster)
        self._here = NodeFacts(cluster, node, units, options.gpu_numbers)
        return self._here

    async def _update(
        self, ctx: SourceContext, found: JobCgroups, here: NodeFacts, moments: WallTimes
    ) -> bool:
        """Ask about new jobs for a limited time, and report all jobs.

        Returns:
            Whether Slurm was asked about all jobs.
        """
        start_ns = ctx.clock.now().mono_ns
        present = self._present(found, start_ns)
        for jobs in (self._known, self._unanswered):
            for gone in jobs.keys() - present:
                del jobs[gone]
        waiting = {one for one, why in self._unanswered.items() if why.again_ns > start_ns}
        # Those that were asked least often are first, so that no job keeps others from being asked.
        asked = sorted(present - self._known.keys() - waiting, key=self._turn)
        limit_ns = start_ns + round(float(self._options.timeout) * NS)
        while asked and ctx.clock.now().mono_ns <= limit_ns:
            await self._ask(ctx, asked.pop(0), here, moments)
        fault = "Slurm answers slowly, and podgpu has not asked about all jobs yet" if asked else ""
        failed = [(job, why) for (job, _), why in self._unanswered.items() if why.reason]
        if failed:
            job, why = min(failed, key=lambda one: int(one[0]))
            fault = f"job {job} is unknown: {why.reason}; podgpu asks again"
        await self._report(ctx, fault)
        return not asked

    def _turn(self, one: tuple[str, int]) -> tuple[int, int]:
        before = self._unanswered.get(one)
        return before.attempts if before else 0, int(one[0])

    async def _ask(
        self, ctx: SourceContext, one: tuple[str, int], here: NodeFacts, moments: WallTimes
    ) -> None:
        """Ask about a job, and remember what is known of it, or why nothing is."""
        described, reason = None, ""
        try:
            described = await self._describe(ctx, one[0], here, moments)
        except UnknownJobError:
            pass
        except SlurmError as error:
            reason = str(error)
        before = self._unanswered.pop(one, None)
        if described is not None:
            self._known[one] = described
            return
        attempts = before.attempts + 1 if before else 1
        seconds = float(self._options.interval)
        if not reason:
            # Such as a job of a slurmctld that has lost its state.
            seconds = max(seconds, min(seconds * 2 ** min(attempts, 16), _MAX_WAIT_SECONDS))
        again_ns = ctx.clock.now().mono_ns + round(seconds * NS)
        self._unanswered[one] = _Unanswered(reason, attempts, again_ns)

    def _present(self, found: JobCgroups, now_ns: int) -> set[tuple[str, int]]:
        """Return the jobs that have not ended, with the inodes of their cgroups."""
        jobs = set(found.jobs.items())
        empty = {(job, found.jobs[job]) for job in found.empty}
        self._empty_since = {one: self._empty_since.get(one, now_ns) for one in empty}
        limit_ns = now_ns - round(EMPTY_SECONDS * NS)
        return jobs - {one for one, since_ns in self._empty_since.items() if since_ns < limit_ns}

    async def _describe(
        self, ctx: SourceContext, job: str, here: NodeFacts, moments: WallTimes
    ) -> RunningContainer | None:
        """Return a job; None if it has not started by Slurm's data: then it is asked again.

        Raises:
            SlurmError: Slurm does not answer, or does not know the job.
        """
        record = await ask(self._slurm, job, here.node)
        if record.started_s is None:
            return None
        if record.unread:
            ctx.log.warning(
                "job %s: podgpu cannot read its allocation %s on node %s; it is unknown which GPUs "
                "it holds",
                job,
                line(", ".join(record.unread)),
                here.node,
            )
        return running_job(job, record, here, moments)

    async def _report(self, ctx: SourceContext, fault: str) -> None:
        now_ns = ctx.clock.now().mono_ns
        jobs = sorted(self._known.values(), key=lambda one: int(one.subject.pod))
        event = ContainersReplaced(tuple(jobs), self._options.max_age.ns)
        old = now_ns - self._emitted_ns > event.good_for_ns // 3
        # An event brings the source up, so there is none without need while it is down.
        if not fault or event != self._emitted or old:
            await ctx.emit(event)
            self._emitted, self._emitted_ns = event, now_ns
        if fault and fault != self._fault:
            ctx.log.warning("%s; the other jobs stay known", fault)
        elif self._fault and not fault:
            ctx.log.info("all jobs are known again")
        self._fault = fault
        if fault:
            await ctx.emit(SourceLost(fault))
