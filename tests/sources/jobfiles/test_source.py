"""Events of the source `jobfiles` while files change; real files, real inotify."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.model import DeviceJobs, JobsReplaced, SourceLost
from sources.jobfiles.options import Options
from sources.jobfiles.source import JobFilesSource
from tests.sources.jobfiles.contract import options
from tests.support.contexts import FakeSourceContext, LoopClock
from tests.support.running import running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "gpu-jobs"
    made.mkdir(parents=True)
    return made


def source(folder: Path, interval: str = "1h") -> JobFilesSource:
    return JobFilesSource(Options(path=folder, interval=Duration.parse(interval)))


async def jobs_after(ctx: FakeSourceContext, *expected: DeviceJobs) -> None:
    """Wait until exactly these jobs are reported; within a second, although `interval` is 1 h."""
    count = 1
    while True:
        events = await ctx.wait_for(JobsReplaced, count, timeout=5)
        if events[-1].devices == expected:
            return
        count = len(events) + 1


def on(gpu: int, *jobs: str) -> DeviceJobs:
    return DeviceJobs(gpu, None, jobs)


async def test_changes_of_files_are_reported(folder: Path) -> None:
    async with running(source(folder), FakeSourceContext()) as ctx:
        await jobs_after(ctx)
        (folder / "0").write_text("12\n")
        await jobs_after(ctx, on(0, "12"))
        with (folder / "0").open("a") as file:
            file.write("13\n")
        await jobs_after(ctx, on(0, "12", "13"))
        (folder / ".new").write_text("13\n")
        (folder / ".new").rename(folder / "0")
        await jobs_after(ctx, on(0, "13"))
        os.truncate(folder / "0", 0)
        await jobs_after(ctx)
        (folder / "1").write_text("14\n")
        await jobs_after(ctx, on(1, "14"))
        (folder / "1").rename(folder / "2")
        await jobs_after(ctx, on(2, "14"))
        (folder / "2").unlink()
        await jobs_after(ctx)


async def test_a_write_is_noticed_while_the_file_is_still_open(folder: Path) -> None:
    async with running(source(folder), FakeSourceContext()) as ctx:
        await jobs_after(ctx)
        with (folder / "0").open("w") as file:
            file.write("12\n")
            file.flush()
            await jobs_after(ctx, on(0, "12"))


async def test_a_folder_that_appears_later_is_read(folder: Path) -> None:
    shutil.rmtree(folder.parent)
    async with running(source(folder), FakeSourceContext()) as ctx:
        (lost,) = await ctx.wait_for(SourceLost)
        assert lost.reason.startswith(f"{folder}: no such folder; create it when the node starts")
        folder.mkdir(parents=True)
        (folder / "0").write_text("12\n")
        await jobs_after(ctx, on(0, "12"))


async def test_without_the_folder_no_job_is_known_any_more(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "0").write_text("12\n")
    with caplog.at_level(logging.INFO):
        async with running(source(folder), FakeSourceContext()) as ctx:
            await jobs_after(ctx, on(0, "12"))
            folder.rename(folder.with_name("moved"))
            await ctx.wait_for(SourceLost)
            assert isinstance(ctx.events[-1], SourceLost)
            await jobs_after(ctx)
            folder.with_name("moved").rename(folder)
            await jobs_after(ctx, on(0, "12"))
    assert [one.message for one in caplog.records if "readable" in one.message] == [
        f"{folder} is readable again"
    ]


async def test_a_bad_file_is_logged_once_and_its_end_too(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(folder / "0")
    with caplog.at_level(logging.INFO):
        async with running(source(folder, "1s"), FakeSourceContext()) as ctx:
            await ctx.wait_for(JobsReplaced, 2)
            (folder / "0").unlink()
            await ctx.wait_for(JobsReplaced, 3)
    assert [one.message for one in caplog.records] == [
        f"{folder}/0: is not a regular file; readings of its device have no label hpc_job",
        f"{folder}: all files are readable again",
    ]


@pytest.mark.looptime
async def test_the_jobs_are_confirmed_at_each_interval(tmp_path: Path) -> None:
    ctx = FakeSourceContext(clock=LoopClock())
    async with running(JobFilesSource(options(tmp_path)), ctx):
        first, second = await ctx.wait_for(JobsReplaced, 2)
    assert first == second == JobsReplaced((on(0, "4711"),), 300 * 10**9)
    assert ctx.emitted_at[0].seconds_until(ctx.emitted_at[1]) == pytest.approx(1, abs=0.1)


async def test_other_files_next_to_the_folder_cause_no_reading(folder: Path) -> None:
    async with running(source(folder), FakeSourceContext()) as ctx:
        await jobs_after(ctx)
        (folder.parent / "other").write_text("x")
        (folder / "0").write_text("1\n")
        await jobs_after(ctx, on(0, "1"))
    assert len(ctx.events) <= 3  # the first, and the file: created, then written
