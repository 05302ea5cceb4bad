"""Rotated files are compressed in the background; no line is lost or written twice."""

import asyncio
import errno
import gzip
import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from sinks.jsonl import compressor as compressing
from sinks.jsonl import rotated_files
from sinks.jsonl.rotated_files import Rotated
from sinks.jsonl.rotating_file import RotatingFile
from sinks.jsonl.sink import JsonLinesSink
from tests.sinks.jsonl.support import Bench, options, parsed, watts

KEEP = 4


def bench_of(path: Path) -> Bench:
    return Bench(options(path, max_size="1B", keep=KEEP, compress="gzip"))


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def plain_files(path: Path) -> list[str]:
    """Return the rotated files that are not compressed, and temporary files."""
    return [name for name in names(path.parent) if name != path.name and name[-3:] != ".gz"]


def values(file: Path) -> list[float]:
    text = gzip.decompress(file.read_bytes())
    return [line["readings"]["power_watts"] for line in parsed(text)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Block compression until this event is set."""
    released = threading.Event()
    fill = compressing.Compressor._fill

    def slowly(*args: object) -> None:
        released.wait(20)
        fill(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(compressing.Compressor, "_fill", slowly)
    yield released
    released.set()


async def test_rotated_files_are_compressed(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = bench_of(path)
    async with bench.writing():
        for number in range(1, 4):
            await bench.write()
            await until(lambda number=number: len(list(tmp_path.glob("*.gz"))) == number - 1)  # type: ignore[misc]
            await until(lambda: not plain_files(path))
    assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1.gz", "gpu.jsonl.2.gz"]
    assert [values(tmp_path / f"gpu.jsonl.{n}.gz") for n in (2, 1)] == [[1], [2]]
    assert watts(path) == [3]
    assert bench.errors == {}


async def test_a_compressed_file_keeps_mode_and_time(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    (tmp_path / "gpu.jsonl.2").write_bytes(b"{}\n")
    os.utime(tmp_path / "gpu.jsonl.2", (1000, 1000))
    (tmp_path / "gpu.jsonl.2").chmod(0o640)
    async with bench_of(path).writing():
        await until(lambda: names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.2.gz"])
    found = (tmp_path / "gpu.jsonl.2.gz").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o640, 1000)


async def test_keep_counts_compressed_files_too(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    async with bench_of(path).writing() as bench:
        for _ in range(9):
            await bench.write()
            await until(lambda: not plain_files(path))
    assert names(tmp_path) == ["gpu.jsonl"] + [f"gpu.jsonl.{n}.gz" for n in range(1, KEEP + 1)]
    assert [values(tmp_path / f"gpu.jsonl.{n}.gz") for n in range(KEEP, 0, -1)] == [
        [n] for n in range(5, 9)
    ]
    # Without the option compressed files are still rotated.
    async with Bench(options(path, max_size="1B", keep=KEEP)).writing() as bench:
        await bench.write(2)
    assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1", "gpu.jsonl.2"] + [
        f"gpu.jsonl.{n}.gz" for n in (3, 4)
    ]


async def test_slow_compression_does_not_delay_lines_or_accumulate(
    tmp_path: Path, gate: threading.Event
) -> None:
    path = tmp_path / "gpu.jsonl"
    async with bench_of(path).writing() as bench:
        start = time.perf_counter()
        await bench.write(50)
        assert time.perf_counter() - start < 5
        full = [f"gpu.jsonl.{n}" for n in range(1, KEEP + 1)]
        # One is in work: of a file that was already rotated away.
        assert [name for name in names(tmp_path) if name[0] != "."] == ["gpu.jsonl", *full]
        assert len(names(tmp_path)) == len(full) + 2
        assert sum(t.name == "podgpu-jsonl-gzip" for t in threading.enumerate()) == 1
        gate.set()
        await until(lambda: not plain_files(path))
        found = [values(tmp_path / f"gpu.jsonl.{n}.gz") for n in range(KEEP, 0, -1)]
        assert found == [[n] for n in range(46, 50)]
    assert (bench.emitted, bench.dropped, bench.errors) == (50, {}, {})


async def test_the_oldest_file_is_compressed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, order = tmp_path / "gpu.jsonl", []
    exchange = Rotated.replace_by_compressed

    def recorded(self: Rotated, found: os.stat_result, compressed: Path) -> bool:
        order.append(found.st_size)
        return exchange(self, found, compressed)

    monkeypatch.setattr(Rotated, "replace_by_compressed", recorded)
    for number in range(1, KEEP + 1):
        path.with_name(f"gpu.jsonl.{number}").write_bytes(b"\n" * number)
    async with bench_of(path).writing():
        await until(lambda: not plain_files(path))
    assert order == [4, 3, 2, 1]


async def test_a_file_rotated_during_compression_is_replaced_at_its_new_name(
    tmp_path: Path, gate: threading.Event
) -> None:
    path = tmp_path / "gpu.jsonl"
    async with bench_of(path).writing() as bench:
        await bench.write(2)
        await until(lambda: len(names(tmp_path)) == 3)
        await bench.write(2)
        gate.set()
        await until(lambda: not plain_files(path))
    assert [values(tmp_path / f"gpu.jsonl.{n}.gz") for n in (3, 2, 1)] == [[1], [2], [3]]


@pytest.mark.slow
async def test_a_stop_aborts_compression(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    path.with_name("gpu.jsonl.1").write_bytes(os.urandom(64 << 20))
    async with bench_of(path).writing():
        await until(lambda: len(names(tmp_path)) == 3)
        start = time.perf_counter()
    assert time.perf_counter() - start < 1
    assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1"]


def idle(bench: Bench) -> bool:
    """Return whether the compressor has finished or given up."""
    assert isinstance(bench.sink, JsonLinesSink)
    target = bench.sink._target
    assert isinstance(target, RotatingFile)
    assert target._compressor is not None
    last = target._compressor._pass
    return last is not None and last.done()


async def test_a_wake_at_the_end_of_a_pass_starts_another_pass(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu.jsonl"
    (tmp_path / "gpu.jsonl.1").write_bytes(b"{}\n")
    found, woken = compressing.Compressor._open_next, threading.Event()

    def rotated_meanwhile(compressor: compressing.Compressor, tried: set[int]) -> BinaryIO | None:
        source = found(compressor, tried)
        if source is None and not woken.is_set():
            (tmp_path / "gpu.jsonl.2").write_bytes(b"{}\n")
            gate.clear()
            while compressor._pass is None:  # until the first wake has returned
                time.sleep(0.001)
            compressor.wake()
            woken.set()
        return source

    monkeypatch.setattr(compressing.Compressor, "_open_next", rotated_meanwhile)
    gate.set()
    async with bench_of(path).writing() as bench:
        await until(lambda: (tmp_path / "gpu.jsonl.1.gz").exists() and woken.is_set())
        await until(lambda: any(name.startswith(".gpu") for name in names(tmp_path)))
        assert not idle(bench)
        gate.set()
        await until(lambda: idle(bench))
        assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1.gz", "gpu.jsonl.2.gz"]


def break_at(step: str, cause: OSError, patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise cause

    places: dict[str, tuple[object, str]] = {
        "open": (Rotated, "unfinished"),
        "fill": (compressing.Compressor, "_fill"),
        "rename": (Rotated, "replace_by_compressed"),
        "folder": (rotated_files, "flush_folder"),
    }
    patch.setattr(*places[step], fail)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.ENOSPC, "no_space"), (errno.EIO, "io_error"), (errno.EROFS, "read_only")],
)
@pytest.mark.parametrize("step", ["open", "fill", "rename", "folder"])
async def test_a_failed_compression_keeps_the_plain_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, step: str, code: int, reason: str
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "gpu.jsonl"
    async with bench_of(path).writing() as bench:
        with pytest.MonkeyPatch.context() as broken:
            break_at(step, OSError(code, os.strerror(code)), broken)
            for count in (2, 1, 1):
                await bench.write(count)
                await until(lambda: idle(bench))
            assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1", "gpu.jsonl.2", "gpu.jsonl.3"]
            assert bench.dropped == {}
            assert bench.errors["compress", reason] >= 2
            assert caplog.text.count("cannot compress") == 1
        await bench.write()
        await until(lambda: not plain_files(path))
    assert caplog.text.count("are compressed again") == 1
    assert [values(tmp_path / f"gpu.jsonl.{n}.gz") for n in (4, 3, 2, 1)] == [[1], [2], [3], [4]]


async def test_a_full_disk_during_compression_keeps_the_plain_file(tmp_path: Path) -> None:
    path, full = tmp_path / "gpu.jsonl", tmp_path / "gpu.jsonl.1"
    full.write_bytes(os.urandom(1 << 20))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))
    try:
        async with bench_of(path).writing() as bench:
            await until(lambda: idle(bench))
            await bench.write()
            assert bench.errors == {("compress", "no_space"): 1}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1"]
    assert full.stat().st_size == 1 << 20


async def test_an_unreadable_file_does_not_stop_compression_of_others(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    (tmp_path / "gpu.jsonl.4").mkdir()
    (tmp_path / "gpu.jsonl.3").symlink_to("nowhere")
    async with bench_of(path).writing() as bench:
        await bench.write(2)
        await until((tmp_path / "gpu.jsonl.1.gz").exists)
    assert (tmp_path / "gpu.jsonl.4").is_dir()


async def test_with_little_free_space_files_are_not_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Room:
        f_bavail, f_frsize = 0, 4096

    monkeypatch.setattr(os, "fstatvfs", lambda _: Room)
    async with bench_of(tmp_path / "gpu.jsonl").writing() as bench:
        await bench.write(2)
        await asyncio.sleep(0.05)
        await bench.write(1)
    assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1", "gpu.jsonl.2"]
    assert bench.errors[("compress", "no_space")] >= 1


@pytest.mark.parametrize(
    ("other", "stays"),
    [("same", False), ("longer", True), ("newer", True), ("half", True), ("no gzip", True)],
)
async def test_remains_of_a_killed_compression_are_removed_at_the_start(
    tmp_path: Path, other: str, stays: bool
) -> None:
    path, plain = tmp_path / "gpu.jsonl", tmp_path / "gpu.jsonl.2"
    (tmp_path / ".gpu.jsonl.gz-0123456789abcdef").write_bytes(b"half")
    (tmp_path / ".gpu.jsonl.gz-mine").write_bytes(b"not ours")
    plain.write_bytes(b'{"a":1}\n')
    os.utime(plain, (5000.5, 5000.5))
    packed = gzip.compress(plain.read_bytes() + b"\n" * (other == "longer"), mtime=5000)
    if other == "newer":
        os.utime(plain, (6000, 6000))
    packed = {"half": packed[:12], "no gzip": b"x" * 40}.get(other, packed)
    (tmp_path / "gpu.jsonl.2.gz").write_bytes(packed)
    async with bench_of(path).writing():
        await asyncio.sleep(0.02)
    assert (tmp_path / "gpu.jsonl.2.gz").read_bytes() == packed
    expected = [".gpu.jsonl.gz-mine", "gpu.jsonl", "gpu.jsonl.2.gz"]
    assert names(tmp_path) == sorted(expected + ["gpu.jsonl.2"] * stays)


async def test_files_rotated_by_logrotate_are_not_compressed(tmp_path: Path) -> None:
    (tmp_path / "gpu.jsonl.1").write_bytes(b"{}\n")
    bench = Bench(options(tmp_path / "gpu.jsonl", max_size="0B", compress="gzip"))
    async with bench.writing():
        await bench.write(2)
        await asyncio.sleep(0.02)
    assert names(tmp_path) == ["gpu.jsonl", "gpu.jsonl.1"]
