"""The source `slurm`: reports the jobs on this node, and their changes."""

import asyncio
from typing import Final

from pipeline.base.clock import WallTimes
from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.files.file_watch import Watcher
from pipeline.model import NS, ContainersReplaced, RunningContainer, SourceLost
from sources.slurm import job_cgroups
from sources.slurm.job_cgroups import JobCgroups
from sources.slurm.job_record import job_record, setting, units_per_gpu
from sources.slurm.jobs import NodeFacts, running_job
from sources.slurm.options import Options
from sources.slurm.scontrol import Scontrol, ScontrolError, UnknownJobError

EMPTY_SECONDS: Final = 60.0
"""Seconds after which a job whose cgroup has no process has ended."""

_MOMENTS: Final = "moments"


class SlurmSource:
    """Follows the cgroups of jobs; implements `pipeline.component.contracts.Source`.

    scontrol is run once for each job, and twice at the start. Known jobs stay while slurmctld is
    down.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._scontrol = Scontrol(float(options.timeout))
        self._here: NodeFacts | None = None
        self._known: dict[tuple[str, int], RunningContainer] = {}
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
                await self._update(ctx, found, here, moments)
                took_ns = ctx.clock.now().mono_ns - start_ns
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
        node = options.node_name or found.node or ctx.node.partition(".")[0]
        try:
            cluster = setting(await self._scontrol.config(), "ClusterName")
            units = units_per_gpu(await self._scontrol.node(node))
        except ScontrolError as error:
            raise TransientError(f"{error}; podgpu asks again") from error
        ctx.log.info("following the jobs of node %s in cluster %s", node, cluster)
        self._here = NodeFacts(cluster, node, units, options.gpu_numbers)
        return self._here

    async def _update(
        self, ctx: SourceContext, found: JobCgroups, here: NodeFacts, moments: WallTimes
    ) -> None:
        """Ask about new jobs, and report all jobs."""
        present = self._present(found, ctx.clock.now().mono_ns)
        for gone in self._known.keys() - present:
            del self._known[gone]
        fault = ""
        for job, inode in sorted(present - self._known.keys(), key=lambda one: int(one[0])):
            try:
                described = await self._describe(ctx, job, here, moments)
            except ScontrolError as error:
                fault = f"job {job} is unknown: {error}; podgpu asks again"
                break
            if described is not None:
                self._known[job, inode] = described
        await self._report(ctx, fault)

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
        """Return a job; None if it has not started by Slurm's data: then it is asked again."""
        try:
            record = job_record(await self._scontrol.job(job), job, here.node)
        except UnknownJobError:
            return None
        if record.ambiguous:
            ctx.log.warning(
                "job %s: its name or another text of its user looks like the keys %s of scontrol; "
                "they are unknown",
                job,
                ", ".join(record.ambiguous),
            )
        if record.unread:
            ctx.log.warning(
                "job %s: podgpu cannot read its allocation %s; it is unknown which GPUs it holds",
                job,
                ", ".join(record.unread),
            )
        return None if record.started_s is None else running_job(job, record, here, moments)

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
