"""What the source reports while its file changes, with real files and inotify.

How a file is followed is tested in `tests/sources/podlist`: both sources use the same code.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from config.value_types import ByteSize, Duration
from pipeline.model import ClaimsReplaced, SourceLost
from sources.checkpoint.options import Options
from sources.checkpoint.source import CheckpointSource
from tests.sources.checkpoint.checkpoints import GPU, OTHER, checkpoint, entry, replace
from tests.support.contexts import FakeSourceContext
from tests.support.running import running

SELDOM = Duration.parse("1h")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device-plugins" / "kubelet_internal_checkpoint"


@asynccontextmanager
async def following(
    path: Path, interval: Duration = SELDOM, **options: Any
) -> AsyncIterator[FakeSourceContext]:
    ctx = FakeSourceContext("checkpoint")
    source = CheckpointSource(Options(path=path, interval=interval, **options))
    async with running(source, ctx):
        yield ctx


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    replace(path, data)


async def test_each_allocation_is_reported(path: Path) -> None:
    write(path, checkpoint())
    async with following(path) as ctx:
        [report] = await ctx.wait_for(ClaimsReplaced)
        assert report == ClaimsReplaced((), Duration.parse("5m").ns)
        for number in range(1, 5):
            write(path, checkpoint(*(entry([GPU], uid=f"u{n}") for n in range(number))))
            report = (await ctx.wait_for(ClaimsReplaced, number + 1, timeout=1))[-1]
            assert len(report.claims) == number


async def test_the_same_entries_in_another_order_are_not_reported_again(path: Path) -> None:
    first, second = entry([GPU], uid="a"), entry([OTHER], uid="b")
    write(path, checkpoint(first, second))
    async with following(path) as ctx:
        await ctx.wait_for(ClaimsReplaced)
        write(path, checkpoint(second, first))
        await asyncio.sleep(0.2)
        assert len(ctx.events) == 1


async def test_claims_are_confirmed_by_the_same_object(path: Path) -> None:
    write(path, checkpoint(entry()))
    async with following(path, interval=Duration.parse("50ms")) as ctx:
        reports = await ctx.wait_for(ClaimsReplaced, 3)
        assert all(one is reports[0] for one in reports)


async def test_an_invalid_file_does_not_withdraw_claims(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    write(path, checkpoint(entry()))
    async with following(path) as ctx:
        await ctx.wait_for(ClaimsReplaced)
        write(path, checkpoint(entry())[:-9])
        [lost] = await ctx.wait_for(SourceLost)
        assert lost.reason.startswith(f"{path}: is not a checkpoint of the kubelet: ")
        assert len(await ctx.wait_for(ClaimsReplaced)) == 1
        write(path, checkpoint(entry()))
        await ctx.wait_for(ClaimsReplaced, 2)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_missing_folder_is_reported_and_followed_once_it_exists(path: Path) -> None:
    async with following(path) as ctx:
        [lost] = await ctx.wait_for(SourceLost)
        assert lost.reason == (
            f"{path}: no such file; mount the kubelet's device-plugins folder from the host, and "
            "set `path` if the kubelet has another root"
        )
        write(path, checkpoint(entry()))
        await ctx.wait_for(ClaimsReplaced, timeout=1)


async def test_a_file_over_max_size_is_reported(path: Path) -> None:
    write(path, checkpoint(entry()) + b" " * 2000)
    async with following(path, max_size=ByteSize(2000)) as ctx:
        [lost] = await ctx.wait_for(SourceLost)
        assert lost.reason == f"{path}: is larger than the maximum of 2KB; raise max_size"


async def test_an_invalid_response_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    write(path, checkpoint(entry(alloc="!")))
    async with following(path, interval=Duration.parse("50ms")) as ctx:
        await ctx.wait_for(ClaimsReplaced, 3)
    assert len(caplog.messages) == 1
    assert "AllocResp for nvidia.com/gpu is not base64; the entry is skipped" in caplog.messages[0]


async def test_t9_after_a_hint_of_another_source_the_file_is_read_immediately(
    path: Path,
) -> None:
    """A name and a UID belong to the same pod only if both were reported at the same time."""
    write(path, checkpoint(entry([GPU], uid="u1")))
    async with following(path) as ctx:
        [report] = await ctx.wait_for(ClaimsReplaced)
        ctx.hint(GPU, source="kubelet")
        assert await ctx.wait_for(ClaimsReplaced, 2, timeout=1) == [report, report]
        ctx.hint(GPU, source="checkpoint")
        await asyncio.sleep(0.1)
        assert len(ctx.events) == 2
