"""Lines are flushed at the interval `fsync`; a file that cannot be flushed is rotated."""

import asyncio
import errno
import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from tests.sinks.jsonl.support import Bench, options, watts


class Disk:
    """A fake `os.fsync` that records flushes, and fails if `broken`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[int] = []
        self.folders = 0
        self.threads: set[str] = set()
        self.broken = False
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, fd: int) -> None:
        self.threads.add(threading.current_thread().name)
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            self.folders += 1
        else:
            self.files.append(found.st_size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_without_the_option_nothing_is_flushed(tmp_path: Path, disk: Disk) -> None:
    async with Bench(options(tmp_path / "gpu.jsonl", max_size="1B")).writing() as bench:
        await bench.write(3)
    assert (disk.files, disk.folders) == ([], 0)


@pytest.mark.slow
async def test_several_lines_are_flushed_together_at_the_interval(
    tmp_path: Path, disk: Disk
) -> None:
    path = tmp_path / "gpu.jsonl"
    async with Bench(options(path, fsync="100ms")).writing() as bench:
        await bench.write(50)
        first = path.stat().st_size
        await asyncio.sleep(0.3)
        assert disk.files[-1] == first
        assert len(disk.files) < 10
        flushes = len(disk.files)
        await asyncio.sleep(0.3)
        assert len(disk.files) == flushes  # nothing was written
        assert disk.folders == 1  # the file was new
        await bench.write(1)
    assert disk.files[-1] == path.stat().st_size
    assert disk.threads == {"podgpu-sink-under-test"}


async def test_full_files_are_flushed_when_they_are_rotated(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "gpu.jsonl"
    async with Bench(options(path, max_size="1B", fsync="1d")).writing() as bench:
        await bench.write(3)
        sizes = [path.with_name(f"gpu.jsonl.{n}").stat().st_size for n in (2, 1)]
        assert disk.files == sizes
    assert disk.files == [*sizes, path.stat().st_size]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "rotated"),
    [({}, "gpu.jsonl.1"), ({"max_size": "0B"}, "gpu.jsonl.unsynced")],
    ids=["rotated here", "rotated by others"],
)
async def test_a_file_that_cannot_be_flushed_is_rotated_once(
    tmp_path: Path,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    rotated: str,
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, fsync="100ms", **settings))  # type: ignore[arg-type]
    async with bench.writing():
        disk.broken = True
        await bench.write(2)
        await asyncio.sleep(0.15)
        assert watts(tmp_path / rotated) == [1, 2]
        assert path.read_bytes() == b""
        # While the fault lasts there is no third file: it would push out the kept files.
        for _ in range(3):
            await bench.write(1)
            await asyncio.sleep(0.12)
        assert watts(path) == [3, 4, 5]
        assert bench.errors[("fsync", "io_error")] >= 3
        disk.broken = False
        await asyncio.sleep(0.15)
        assert watts(tmp_path / rotated) == [3, 4, 5]
        await bench.write(1)
        await asyncio.sleep(0.15)
    assert watts(path) == [6]
    assert (bench.emitted, bench.dropped) == (6, {})
    assert caplog.text.count("cannot flush") == 1
    assert caplog.text.count("is flushed to the disk again") == 1


async def test_a_failed_flush_of_a_full_file_is_counted(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "gpu.jsonl"
    async with Bench(options(path, max_size="1B", fsync="1d")).writing() as bench:
        disk.broken = True
        await bench.write(3)
        assert bench.errors == {("fsync", "io_error"): 2}
        disk.broken = False
    assert watts(tmp_path / "gpu.jsonl.2", tmp_path / "gpu.jsonl.1", path) == [1, 2, 3]


@pytest.mark.slow
async def test_a_slow_flush_does_not_block_the_event_loop(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: released.wait(10))
    loop = asyncio.get_running_loop()
    async with Bench(options(tmp_path / "gpu.jsonl", fsync="100ms")).writing() as bench:
        await bench.write(1)
        longest, last = 0.0, loop.time()
        for _ in range(60):
            await asyncio.sleep(0.005)
            longest, last = max(longest, loop.time() - last), loop.time()
        bench.send()
        assert longest < 0.2
        assert bench.emitted == 1
        released.set()
        await bench.settled()
    assert bench.emitted == 2
