"""Events of the source `slurm`, with a program scontrol and folders instead of cgroups."""

import asyncio
import contextlib
import logging
import os
from pathlib import Path

import msgspec
import pytest

from config.value_types import Duration
from pipeline.base.errors import TransientError
from pipeline.model import (
    Claim,
    ContainersReplaced,
    Evidence,
    Origin,
    PartialRef,
    RawDeviceId,
    SourceLost,
)
from sources.slurm.options import Options
from sources.slurm.slurm_commands import MAX_OUTPUT
from sources.slurm.source import SlurmSource
from tests.sources.slurm import recorded
from tests.sources.slurm.recorded import STARTED, end, start
from tests.support import nodes as support
from tests.support.contexts import FakeSourceContext, LoopClock
from tests.support.running import running


class Node:
    """A node of Slurm in a folder."""

    def __init__(self, folder: Path) -> None:
        self.answers = folder / "slurm"
        self.search_path = recorded.scontrol(self.answers)
        self.root = folder / "cgroup"
        self.cgroups = recorded.version_1(self.root)

    def source(self, interval: str = "1h", timeout: str = "10s") -> SlurmSource:
        return SlurmSource(
            Options(
                cgroups=self.root,
                interval=Duration.parse(interval),
                timeout=Duration.parse(timeout),
            )
        )

    def start(self, number: str, gres: str = "gpu:1(IDX:0)", **texts: str) -> Path:
        """Start a job, whose cgroup is returned."""
        answer = self.answers / f"job.{number}"
        answer.write_text(recorded.job(number, gres, **texts))
        return start(self.cgroups, number)

    def calls(self) -> list[str]:
        return (self.answers / "calls").read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    monkeypatch.setenv("PATH", f"{made.search_path}:/usr/bin:/bin")
    return made


async def jobs_after(ctx: FakeSourceContext, *jobs: str) -> ContainersReplaced:
    """Wait until exactly these jobs are reported."""
    count = 1
    while True:
        events = await ctx.wait_for(ContainersReplaced, count, timeout=8)
        if [one.subject.pod for one in events[-1].containers] == [*jobs]:
            return events[-1]
        count = len(events) + 1


async def test_a_job_is_reported_with_its_user_and_gpus(node: Node) -> None:
    node.start("7", "gpu:2(IDX:0-1),shard:2(IDX:3)")
    async with running(node.source(), FakeSourceContext()) as ctx:
        (job,) = (await jobs_after(ctx, "7")).containers
    uid = f"slurm://lab/7/{STARTED}"
    subject = PartialRef("lab", "7", "", uid, "slurm://7")
    assert job.subject == subject
    assert job.started is not None
    assert job.started.wall_ns == STARTED * 10**9
    assert job.info is not None
    assert (job.info.namespace, job.info.name, job.info.uid) == ("lab", "7", uid)
    assert (job.info.owner_kind, job.info.owner_name) == ("User", "anna")
    assert dict(job.info.labels) == {
        "account": "chem",
        "job_name": "arr",
        "partition": "batch",
        "user": "anna",
    }
    origin = Origin(Evidence.JOB_ALLOCATION, "scontrol show job")
    whole = tuple(RawDeviceId("index", text) for text in "01")
    assert job.claims == (
        Claim(subject, whole, 1.0, job.started, origin, "gres/gpu"),
        Claim(subject, (RawDeviceId("index", "3"),), 0.5, job.started, origin, "gres/shard"),
    )


async def test_slurm_is_asked_once_for_each_job(node: Node) -> None:
    node.start("7")
    async with running(node.source("1s"), FakeSourceContext()) as ctx:
        await ctx.wait_for(ContainersReplaced, 3)
        node.start("8")
        await jobs_after(ctx, "7", "8")
    assert node.calls() == [
        "show config UTC",
        "--oneliner show node node1 UTC",
        "--oneliner --details show job 7 UTC",
        "--oneliner --details show job 8 UTC",
    ]


async def test_jobs_that_start_and_end_are_noticed_without_waiting(node: Node) -> None:
    async with running(node.source(), FakeSourceContext()) as ctx:
        await jobs_after(ctx)
        first = node.start("7")
        await jobs_after(ctx, "7")
        second = node.start("11")
        await jobs_after(ctx, "7", "11")
        end(first)
        await jobs_after(ctx, "11")
        end(second)
        await jobs_after(ctx)


async def test_a_job_that_is_requeued_is_another_owner(node: Node) -> None:
    async with running(node.source(), FakeSourceContext()) as ctx:
        group = node.start("7")
        (before,) = (await jobs_after(ctx, "7")).containers
        end(group)
        await jobs_after(ctx)
        node.start("7", started="2026-11-30T20:50:00")
        (after,) = (await jobs_after(ctx, "7")).containers
    assert before.subject.uid != after.subject.uid


async def test_known_jobs_stay_while_slurmctld_is_down(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.start("7")
    with caplog.at_level(logging.INFO):
        async with running(node.source("1s"), FakeSourceContext()) as ctx:
            await jobs_after(ctx, "7")
            (node.answers / "down").touch()
            node.start("8")
            (lost,) = (await ctx.wait_for(SourceLost))[:1]
            assert lost.reason.startswith("job 8 is unknown: scontrol --oneliner --details show")
            assert "Unable to contact slurm controller" in lost.reason
            await jobs_after(ctx, "7")
            (node.answers / "down").unlink()
            await jobs_after(ctx, "7", "8")
    logged = [one.message for one in caplog.records if one.name.startswith("podgpu")]
    assert sum("is unknown" in text for text in logged) == 1
    assert logged[-1] == "all jobs are known again"


async def test_known_jobs_stay_when_the_source_runs_again_without_slurmctld(node: Node) -> None:
    node.start("7")
    source = node.source()
    async with running(source, FakeSourceContext()) as ctx:
        await jobs_after(ctx, "7")
    (node.answers / "down").touch()
    async with running(source, FakeSourceContext()) as ctx:
        await jobs_after(ctx, "7")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("down", "Unable to contact slurm controller .*; podgpu asks again"),
        ("sleep", "scontrol show config: no answer within 0.3 s; podgpu asks again"),
    ],
)
async def test_without_an_answer_at_the_start_the_source_is_down(
    node: Node, file: str, text: str
) -> None:
    (node.answers / file).touch()
    with pytest.raises(TransientError, match=text):
        await node.source(timeout="300ms").run(FakeSourceContext())


async def test_a_missing_scontrol_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(TransientError, match="scontrol is not on the search path"):
        await node.source().run(FakeSourceContext())


def test_no_option_names_a_program() -> None:
    """Whoever writes the configuration could run any program as podgpu."""
    paths = [one.name for one in msgspec.structs.fields(Options) if isinstance(one.default, Path)]
    assert paths == ["cgroups"]


async def test_cgroups_that_are_not_mounted_are_named(tmp_path: Path) -> None:
    source = SlurmSource(Options(cgroups=tmp_path / "none"))
    with pytest.raises(TransientError, match="freezer: no such folder; mount the host's cgroups"):
        await source.run(FakeSourceContext())


async def test_a_job_that_slurm_has_forgotten_is_not_reported(node: Node) -> None:
    start(node.cgroups, "6")
    node.start("7")
    async with running(node.source(), FakeSourceContext()) as ctx:
        await jobs_after(ctx, "7")
        assert not any(isinstance(event, SourceLost) for event in ctx.events)


LIE = "x UserId=root(0) GroupId=root(0) MCS_label=N/A Account=gold QOS=(null) Command="


async def test_a_name_that_looks_like_other_keys_is_asked_by_itself(node: Node) -> None:
    group = node.start("7", name=LIE)
    (node.answers / "places").write_text("7 7\n")
    (node.answers / "name.7").write_text(f"{LIE}\n")
    async with running(node.source(), FakeSourceContext()) as ctx:
        (job,) = (await jobs_after(ctx, "7")).containers
        end(group)
    assert job.info is not None
    labels = dict(job.info.labels)
    assert (labels["user"], labels["account"], labels["job_name"]) == ("anna", "chem", LIE)


TASKS = {
    "a few tasks": recorded.job("5") + recorded.job("4"),
    "too many tasks": "x" * (MAX_OUTPUT + 1),
}


@pytest.mark.parametrize("answer", TASKS.values(), ids=TASKS)
async def test_the_first_task_of_an_array_is_asked_by_its_place(node: Node, answer: str) -> None:
    """Its id is that of the array, for which scontrol shows all tasks."""
    node.start("4")
    (node.answers / "job.4").write_text(answer)
    (node.answers / "places").write_text("4 4_1\n5 4_0\n")
    (node.answers / "name.4_1").write_text("arr\n")
    (node.answers / "job.4_1").write_text(recorded.job("4", "gpu:1(IDX:3)"))
    async with running(node.source(), FakeSourceContext()) as ctx:
        (job,) = (await jobs_after(ctx, "4")).containers
    assert [claim.devices for claim in job.claims] == [(RawDeviceId("index", "3"),)]


async def test_a_job_that_cannot_be_read_with_certainty_is_not_forgotten(node: Node) -> None:
    """Then its GPUs would look free. The other jobs are reported."""
    node.start("7", name=LIE)
    node.start("8")
    (node.answers / "places").write_text("7 7\n")
    (node.answers / "name.7").write_text("another name\n")
    async with running(node.source(), FakeSourceContext()) as ctx:
        await jobs_after(ctx, "8")
        (lost,) = (await ctx.wait_for(SourceLost))[:1]
    assert lost.reason.startswith("job 7 is unknown: its name looks like a part of scontrol's")


@pytest.mark.slow
async def test_a_job_about_which_slurm_does_not_answer_stops_no_other(node: Node) -> None:
    for number in ("7", "8", "9"):
        node.start(number)
    (node.answers / "sleep.job.7").touch()
    async with running(node.source("1s", "500ms"), FakeSourceContext()) as ctx:
        await jobs_after(ctx, "8", "9")
        (node.answers / "sleep.job.7").unlink()
        await jobs_after(ctx, "7", "8", "9")
    reasons = {event.reason for event in ctx.events if isinstance(event, SourceLost)}
    assert any("job 7 is unknown: scontrol" in reason for reason in reasons)


@pytest.mark.looptime
async def test_slurm_is_asked_ever_less_often_about_a_job_that_it_does_not_know(
    node: Node,
) -> None:
    """As after slurmctld has lost its state, and 50 jobs continue."""
    start(node.cgroups, "6")
    ctx = FakeSourceContext(clock=LoopClock())
    async with running(node.source("10s"), ctx):
        await ctx.clock.sleep(3600)
    asked = [call for call in node.calls() if "show job 6" in call]
    assert 12 <= len(asked) <= 18


async def test_a_job_that_waits_to_run_again_is_not_reported(node: Node) -> None:
    node.start("6", state="PENDING", started="2036-11-30T20:45:11")
    node.start("7")
    async with running(node.source(), FakeSourceContext()) as ctx:
        await jobs_after(ctx, "7")


async def test_with_jobs_of_several_nodes_on_this_host_the_node_has_to_be_named(
    node: Node,
) -> None:
    node.start("7")
    start(recorded.version_1(node.root, "_node2"), "8")
    with pytest.raises(TransientError, match="jobs of the nodes node1 and node2; set node_name"):
        await node.source().run(FakeSourceContext())


async def all_ended(pids: Path) -> None:
    """Wait until no process of the groups of some programs is left."""
    async with asyncio.timeout(5):
        for pid in map(int, pids.read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                while True:
                    os.killpg(pid, 0)
                    await asyncio.sleep(0.01)


async def test_a_program_that_hangs_ends_with_all_that_it_started(node: Node) -> None:
    """Also if it is a script, and the process that it started keeps the pipe open."""
    (node.answers / "sleep").touch()
    with pytest.raises(TransientError, match=r"no answer within 0\.3 s"):
        await node.source(timeout="300ms").run(FakeSourceContext())
    await all_ended(node.answers / "pids")


@pytest.mark.slow
async def test_a_program_that_hangs_ends_when_the_source_is_stopped(node: Node) -> None:
    """A stop or a reload of podgpu does not wait for it."""
    (node.answers / "sleep").touch()
    pids = node.answers / "pids"
    async with running(node.source(timeout="1h"), FakeSourceContext()):
        while not pids.exists() or not pids.read_text():
            await asyncio.sleep(0.01)
    await all_ended(pids)


async def test_a_job_with_unknown_gpus_makes_no_gpu_look_free(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.start("7", "gpu:2(CNT:2)")
    async with running(node.source(), FakeSourceContext()) as ctx:
        event = await jobs_after(ctx, "7")
    assert (
        "job 7: podgpu cannot read its allocation gpu:2(CNT:2) on node node1; it is unknown"
        in caplog.text
    )
    joined = support.Node()
    joined.has(support.gpu(0))
    joined.say(event, "jobs", "slurm")
    unresolved = joined.snapshot().sources["jobs"].unresolved
    assert unresolved == (RawDeviceId("index", "gpu:2(CNT:2)"),)
    assert not joined.join.holders_known


@pytest.mark.looptime
async def test_a_cgroup_that_stays_empty_is_of_a_job_that_has_ended(
    node: Node,
) -> None:
    """slurmstepd removes the cgroup; if it was killed, nothing does."""
    group = node.start("7")
    source = node.source("10s")

    ctx = FakeSourceContext(clock=LoopClock())
    async with running(source, ctx):
        await jobs_after(ctx, "7")
        (group / "step_0" / "cgroup.procs").write_text("")
        await ctx.wait_for(ContainersReplaced, 9, timeout=200)
    counts = [
        (round(ctx.emitted_at[0].seconds_until(at)), len(event.containers))
        for at, event in zip(ctx.emitted_at, ctx.events, strict=True)
        if isinstance(event, ContainersReplaced)
    ]
    assert all(jobs == (1 if seconds <= 70 else 0) for seconds, jobs in counts)
    assert counts[-1][1] == 0
