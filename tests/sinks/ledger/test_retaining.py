"""What is too old, or too much, goes and is counted; a full disk has room again."""

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from config.types import ByteSize, Duration
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import NS
from tests.pipeline.ledger.keeping import assert_adds_up
from tests.pipeline.ledger.test_opening import filled
from tests.sinks.ledger.bench import GPU, SHOWN, Bench, closed, off, seconds_of, whole
from tests.support.nodes import START, at
from tests.support.usage import account, used


def forty_days(path: Path) -> None:
    kept = filled(path, 0)
    for day in range(1, 41):
        had = [used(f"p{n}", held=day * 600 * NS, busy=1, energy=1) for n in range(60)]
        seconds = day * 24 * 3600
        rest = seconds * NS - 60 * day * 600 * NS
        kept.book.take(SHOWN(account(GPU, *had, until=at(seconds), unheld=rest)))
        kept.commit()
    kept.close()


def run(*command: str) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def test_what_is_too_old_goes_and_the_rest_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    await off(closed, path, 40 * 24 * 3600)
    bench = Bench(path, keep=Duration.parse("10d"))
    bench.clock.seconds = 40 * 24 * 3600
    async with bench.running():
        for step in range(1, 8):
            bench.tell(bench.clock.seconds + 70 * step)
            await bench.until(lambda step=step: bench.counted("emitted")[""] >= step)
    first = (await whole(path)).start_ns
    now = at(bench.clock.seconds).wall_ns
    assert first == (now - 10 * 24 * HOUR_NS) // HOUR_NS * HOUR_NS
    assert bench.counted("dropped")["over_age"] > 700
    assert_adds_up(await whole(path))


async def test_a_file_that_is_full_lets_whole_days_go(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    await off(forty_days, path)
    size = path.stat().st_size
    assert size > 1 << 20
    bench = Bench(path, max_size=ByteSize.parse("1MiB"))
    bench.clock.seconds = 41 * 24 * 3600
    async with bench.running():
        bench.tell(bench.clock.seconds)
        await bench.until(lambda: bench.counted("dropped").get("over_size", 0) > 0)
        assert "max_size" in bench.ctx.own.troubles["sink", "usage"].text
    assert path.stat().st_size < size
    window = await whole(path)
    assert_adds_up(window)
    assert window.start_ns % (HOUR_NS) == 0
    assert window.start_ns > START.wall_ns


async def test_the_disk_may_be_full_and_have_room_again(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("mounting a small tmpfs takes root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if await off(run, "mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)):
        pytest.skip("no mounts here")
    try:
        bench = Bench(disk / "usage.db", commit_interval=Duration.parse("100ms"))
        async with bench.running():
            bench.tell(10)
            await bench.until(lambda: bench.counted("emitted")[""] == 1)
            ballast = disk / "ballast"
            await off(fill, ballast)
            for step in range(20):
                bench.tell(20 + step)
                await asyncio.sleep(0.05)
            ballast.unlink()
            bench.tell(100)
            await bench.until(lambda: not bench.sink._pending)
        assert await seconds_of(disk / "usage.db") == 100
        assert not list(disk.glob("*.corrupt-*"))
    finally:
        await off(run, "umount", "-l", str(disk))
