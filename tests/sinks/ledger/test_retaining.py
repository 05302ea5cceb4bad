"""What is too old, or too much, goes and is counted; a full disk has room again."""

import asyncio
import contextlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from config.value_types import ByteSize, Duration
from pipeline.ledger.retention import apply_retention, used_bytes
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS, DeviceUsage, Instant, PodInfo
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from tests.pipeline.ledger.keeping import Kept, assert_adds_up
from tests.pipeline.ledger.test_file_open import filled
from tests.sinks.ledger.bench import GPU, SHOWN, Bench, closed, off, seconds_of, whole
from tests.support.nodes import START, at
from tests.support.usage import account, used


def forty_days(path: Path) -> None:
    kept = filled(path, 0)
    for day in range(1, 41):
        had = [used(f"p{n}", held=day * 600 * NS, busy=1, energy=1) for n in range(60)]
        seconds = day * 24 * 3600
        rest = seconds * NS - 60 * day * 600 * NS
        kept.book.add_snapshot(SHOWN(account(GPU, *had, until=at(seconds), unheld=rest)))
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
        assert "max_size" in bench.ctx.own.problems["sink", "usage"].text
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


def test_pods_of_which_nothing_is_left_make_room_at_once(tmp_path: Path) -> None:
    """Where pods are short, they take more room than their hours: those aren't let go instead."""
    kept = filled(tmp_path / "usage.db", 0)
    labels = tuple((f"label-{number}", "x" * 63) for number in range(10))
    limit, stays = 1 << 20, pod_of("stays", labels)
    for hour in range(1, 241):
        until = at(hour * 3600)
        info = pod_of(f"p{hour}", labels)
        had = [
            used("stays", held=hour * 60 * NS, info=stays),
            used(f"p{hour}", held=60 * NS, info=info),
            *(used(f"p{hour}-{n}", held=60 * NS, info=info) for n in range(20)),
        ]
        forgotten = 21 * 60 * NS * (hour - 1)
        rest = hour * 3600 * NS - sum(one.held_ns for one in had) - forgotten
        given_out = account(GPU, *had, until=until, unheld=rest)
        kept.book.add_snapshot(SHOWN(with_forgotten(given_out, forgotten)))
        kept.commit()
        if hour % 24 == 0:
            connection = kept.store._connection
            kept.store.clear_caches()
            apply_retention(connection, until.wall_ns, 0, limit)
            kept.book.rewrite_all()
            assert used_bytes(connection) < 1.2 * limit
            assert kept.rows("SELECT count(*) FROM device_hours") >= [(24,)]
    kept.commit()
    assert_adds_up(kept.window())
    known = {
        one.container.subject.pod: one.container for one in kept.window().usage if one.container
    }
    assert known["stays"].labels == labels
    kept.close()


def pod_of(name: str, labels: tuple[tuple[str, str], ...]) -> PodInfo:
    return PodInfo(f"u-{name}", "ml", name, "Running", "Job", "train", "Burstable", labels)


def with_forgotten(given_out: DeviceUsage, held_ns: int) -> DeviceUsage:
    return replace(given_out, forgotten_held_ns=held_ns, elapsed_ns=given_out.elapsed_ns + held_ns)


@pytest.mark.parametrize("years", [-60, -57, 0, 12])
def test_t8_what_is_kept_for_ever_is_kept_whatever_the_clock_says(
    tmp_path: Path, years: int
) -> None:
    """T8: hours before 1970 too."""
    kept = Kept(tmp_path / "usage.db")
    set_by = years * 365 * 86_400 * NS
    until = Instant(at(100).mono_ns, at(100).wall_ns + set_by)
    kept.book.add_snapshot(SHOWN(account(GPU, until=until, unheld=100 * NS)))
    kept.commit()
    removed = apply_retention(kept.store._connection, until.wall_ns, 0, 1 << 40)
    assert not removed.old
    assert kept.rows("SELECT sum(accounted_ns) FROM device_hours") == [(100 * NS,)]
    kept.close()


async def test_t8_a_clock_that_is_set_forward_makes_nothing_old(tmp_path: Path) -> None:
    """T8: until 2039 and back, while podgpu runs; all of the forty days is still there."""
    path = tmp_path / "usage.db"
    await off(forty_days, path)
    start_ns = (await whole(path)).start_ns
    start = at(41 * 24 * 3600)
    moments = [start]
    options = Options(path=path, keep=Duration.parse("400d"))
    file = LedgerFile(options, "node-1", lambda: moments[-1])

    def live() -> None:
        file.open()
        for seconds in (70, 140, 210):
            ns = seconds * NS
            moments.append(Instant(start.mono_ns + ns, start.wall_ns + ns + 12 * 366 * 86_400 * NS))
            assert not file.put(Batch()).removed.old
        file.close()

    await off(live)
    assert (await whole(path)).start_ns == start_ns
