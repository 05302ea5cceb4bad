"""Old or excess data is removed and counted; a full disk loses nothing once it has space again."""

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
from tests.pipeline.ledger.open_ledger import OpenLedger, assert_adds_up
from tests.pipeline.ledger.test_file_open import filled
from tests.sinks.ledger.harness import (
    GPU,
    SNAPSHOT,
    SinkHarness,
    in_thread,
    read_whole_window,
    seconds_of,
    write_ledger,
)
from tests.support.nodes import START, at
from tests.support.usage import account, used


def write_forty_days(path: Path) -> None:
    ledger = filled(path, 0)
    for day in range(1, 41):
        containers = [used(f"p{n}", held=day * 600 * NS, busy=1, energy=1) for n in range(60)]
        seconds = day * 24 * 3600
        rest = seconds * NS - 60 * day * 600 * NS
        ledger.accumulator.add_snapshot(
            SNAPSHOT(account(GPU, *containers, until=at(seconds), unheld=rest))
        )
        ledger.commit()
    ledger.close()


def run(*command: str) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def test_hours_that_are_too_old_are_removed_and_the_rest_sums_up(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    await in_thread(write_ledger, path, 40 * 24 * 3600)
    harness = SinkHarness(path, keep=Duration.parse("10d"))
    harness.clock.seconds = 40 * 24 * 3600
    async with harness.running():
        for step in range(1, 8):
            harness.send_account(harness.clock.seconds + 70 * step)
            await harness.until(lambda step=step: harness.counted("emitted")[""] >= step)
    first = (await read_whole_window(path)).start_ns
    now = at(harness.clock.seconds).wall_ns
    assert first == (now - 10 * 24 * HOUR_NS) // HOUR_NS * HOUR_NS
    assert harness.counted("dropped")["over_age"] > 700
    assert_adds_up(await read_whole_window(path))


@pytest.mark.slow
async def test_a_file_that_is_too_large_loses_whole_days(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    await in_thread(write_forty_days, path)
    size = path.stat().st_size
    assert size > 1 << 20
    harness = SinkHarness(path, max_size=ByteSize.parse("1MiB"))
    harness.clock.seconds = 41 * 24 * 3600
    async with harness.running():
        harness.send_account(harness.clock.seconds)
        await harness.until(lambda: harness.counted("dropped").get("over_size", 0) > 0)
        assert "max_size" in harness.ctx.own.problems["sink", "usage"].text
    assert path.stat().st_size < size
    window = await read_whole_window(path)
    assert_adds_up(window)
    assert window.start_ns % (HOUR_NS) == 0
    assert window.start_ns > START.wall_ns


@pytest.mark.slow
async def test_nothing_is_lost_when_the_disk_is_full_for_a_while(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("mounting a small tmpfs takes root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if await in_thread(run, "mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", str(disk)):
        pytest.skip("no mounts here")
    try:
        harness = SinkHarness(disk / "usage.db", commit_interval=Duration.parse("100ms"))
        async with harness.running():
            harness.send_account(10)
            await harness.until(lambda: harness.counted("emitted")[""] == 1)
            ballast = disk / "ballast"
            await in_thread(fill, ballast)
            for step in range(20):
                harness.send_account(20 + step)
                await asyncio.sleep(0.05)
            ballast.unlink()
            harness.send_account(100)
            await harness.until(lambda: not harness.sink._pending)
        assert await seconds_of(disk / "usage.db") == 100
        assert not list(disk.glob("*.corrupt-*"))
    finally:
        await in_thread(run, "umount", "-l", str(disk))


@pytest.mark.slow
def test_pods_without_rows_are_removed_before_hours(tmp_path: Path) -> None:
    """Many short pods need more space than their hours; hours are not removed instead."""
    ledger = filled(tmp_path / "usage.db", 0)
    labels = tuple((f"label-{number}", "x" * 63) for number in range(10))
    limit, stays = 1 << 20, pod_of("stays", labels)
    for hour in range(1, 241):
        until = at(hour * 3600)
        info = pod_of(f"p{hour}", labels)
        containers = [
            used("stays", held=hour * 60 * NS, info=stays),
            used(f"p{hour}", held=60 * NS, info=info),
            *(used(f"p{hour}-{n}", held=60 * NS, info=info) for n in range(20)),
        ]
        forgotten = 21 * 60 * NS * (hour - 1)
        rest = hour * 3600 * NS - sum(one.held_ns for one in containers) - forgotten
        usage = account(GPU, *containers, until=until, unheld=rest)
        ledger.accumulator.add_snapshot(SNAPSHOT(with_forgotten(usage, forgotten)))
        ledger.commit()
        if hour % 24 == 0:
            connection = ledger.store.connection
            ledger.store.clear_caches()
            apply_retention(connection, until.wall_ns, 0, limit)
            ledger.accumulator.rewrite_all()
            assert used_bytes(connection) < 1.2 * limit
            assert ledger.rows("SELECT count(*) FROM device_hours") >= [(24,)]
    ledger.commit()
    assert_adds_up(ledger.window())
    known = {
        one.container.subject.pod: one.container for one in ledger.window().usage if one.container
    }
    assert known["stays"].labels == labels
    ledger.close()


def pod_of(name: str, labels: tuple[tuple[str, str], ...]) -> PodInfo:
    return PodInfo(f"u-{name}", "ml", name, "Running", "Job", "train", "Burstable", labels)


def with_forgotten(usage: DeviceUsage, held_ns: int) -> DeviceUsage:
    return replace(usage, forgotten_held_ns=held_ns, elapsed_ns=usage.elapsed_ns + held_ns)


@pytest.mark.parametrize("years", [-60, -57, 0, 12])
def test_t8_nothing_is_removed_without_limit_of_age_whatever_the_clock_shows(
    tmp_path: Path, years: int
) -> None:
    """T8: also hours before 1970."""
    ledger = OpenLedger(tmp_path / "usage.db")
    set_by = years * 365 * 86_400 * NS
    until = Instant(at(100).mono_ns, at(100).wall_ns + set_by)
    ledger.accumulator.add_snapshot(SNAPSHOT(account(GPU, until=until, unheld=100 * NS)))
    ledger.commit()
    removed = apply_retention(ledger.store.connection, until.wall_ns, 0, 1 << 40)
    assert not removed.old
    assert ledger.rows("SELECT sum(accounted_ns) FROM device_hours") == [(100 * NS,)]
    ledger.close()


@pytest.mark.slow
async def test_t8_nothing_is_removed_when_the_clock_is_set_forward(tmp_path: Path) -> None:
    """T8: the clock is set to 2039 and back while podgpu runs; all forty days are kept."""
    path = tmp_path / "usage.db"
    await in_thread(write_forty_days, path)
    start_ns = (await read_whole_window(path)).start_ns
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

    await in_thread(live)
    assert (await read_whole_window(path)).start_ns == start_ns
