"""What goes wrong is told with its mend, costs no other file anything, and is over when it is."""

import asyncio
import errno
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.base.channels import Channel
from pipeline.base.errors import TransientError
from pipeline.files import file_thread
from sinks.podlist import sink as under_test
from tests.sinks.podlist.support import (
    FOREIGN,
    OURS_OF_BEFORE,
    Bench,
    held,
    listing,
    names,
    ours,
    short,
    until,
)
from tests.support.sinks import supervised

WAYS = pytest.mark.parametrize("write", ["rename", "inplace"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "pod-resources"
    folder.mkdir()
    return folder / "podlist.json"


async def refused(bench: Bench) -> str:
    """What a sink that should write says instead."""
    bench.holds(held("a", 0))
    with pytest.raises(TransientError) as caught:
        async with asyncio.timeout(10), bench.sink:
            await bench.sink.run(bench.inbox)
    return str(caught.value)


def folder_gone(path: Path) -> None:
    path.parent.rmdir()


def folder_is_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.touch()


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    (path.parent / "real.json").write_text("[]")
    path.symlink_to("real.json")


def something_else(path: Path) -> None:
    path.write_text("apiVersion: v1\n")


def too_large(path: Path) -> None:
    path.write_text("[" + " " * (10 << 20) + "]")


FAULTS: dict[Callable[[Path], None], str] = {
    folder_gone: "cannot write {path}: the folder {path.parent} does not exist: create or mount it",
    folder_is_a_file: "cannot write {path}: not a directory",
    a_folder: "{path}: is not a regular file",
    a_pipe: "{path}: is not a regular file",
    a_link: "{path}: is a symbolic link; give the path it leads to",
    something_else: "{path}: contains something other than a pod list; move it away, or set "
    "another path",
    too_large: "{path}: is larger than 10MiB, so it is not a pod list",
}


@WAYS
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_at_the_start(path: Path, fault: Callable[[Path], None], write: str) -> None:
    fault(path)
    bench = Bench(path, write=write)
    with pytest.raises(TransientError) as caught:
        await bench.sink.__aenter__()
    assert str(caught.value) == FAULTS[fault].format(path=path)


@pytest.mark.parametrize("fault", [a_folder, a_link, something_else], ids=lambda f: f.__name__)
async def test_what_comes_later_is_no_more_touched(
    path: Path, fault: Callable[[Path], None]
) -> None:
    bench = Bench(path)
    bench.holds(held("a", 0))
    async with bench.sink:
        fault(path)
        before = path.lstat()
        with pytest.raises(TransientError) as caught:
            await bench.sink.run(bench.inbox)
    assert str(caught.value) == FAULTS[fault].format(path=path)
    assert path.lstat() == before


ERRORS = {
    errno.EACCES: "permission denied to uid {uid}, which must write {place}",
    errno.EPERM: "permission denied to uid {uid}, which must write {place}",
    errno.EROFS: "the file system is read-only: mount {place} writable",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of uid {uid} is used up",
    errno.EIO: "input/output error",
}


@WAYS
@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
async def test_while_it_is_written(
    path: Path, write: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(listing(FOREIGN))
    real = os.open

    def opened(name: object, flags: int, *rest: int, **more: int) -> int:
        if flags & os.O_WRONLY:
            raise OSError(number, os.strerror(number))
        return real(name, flags, *rest, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        said = await refused(Bench(path, write=write))
    place = path if write == "inplace" else path.parent
    assert said == f"cannot write {path}: " + ERRORS[number].format(uid=os.geteuid(), place=place)
    assert path.read_text() == listing(FOREIGN)
    assert names(path.parent) == [path.name]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let writes beyond a size fail in the kernel, after a part of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@WAYS
async def test_a_write_that_is_cut_short_is_taken_back(path: Path, write: str) -> None:
    path.write_text(listing(FOREIGN))
    with file_size_limit(len(listing(FOREIGN)) + 9):
        said = await refused(Bench(path, write=write))
    assert said == f"cannot write {path}: file too large"
    assert path.read_text() == listing(FOREIGN)
    assert names(path.parent) == [path.name]


@WAYS
async def test_it_is_fixed_by_itself(
    path: Path, write: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under its supervisor: down while the folder is gone, up and right once it is there."""
    folder_gone(path)
    bench = Bench(path, write=write)

    async def sleep(_: float) -> None:
        await asyncio.sleep(0.01)

    monkeypatch.setattr(bench.clock, "sleep", sleep)
    async with supervised(bench.sink, bench.ctx, Channel(1)):
        bench.holds(held("a", 0))
        await bench.rests()
        assert bench.ctx.up == 0
        path.parent.mkdir()
        await bench.reads(f"a={short(0)}")
        assert bench.ctx.up == 1
    assert "does not exist: create or mount it" in caplog.text


# -- lists that somebody is at work on, or was


async def test_who_writes_in_place_is_given_time(path: Path) -> None:
    async with Bench(path).keeping() as bench:
        path.write_text(listing(FOREIGN)[:-20])
        bench.holds(held("a", 0))
        await bench.rests()
        assert path.read_text() == listing(FOREIGN)[:-20]
        path.write_text(listing(FOREIGN))
        await until(lambda: ours(path) == [f"a={short(0)}"])
        assert FOREIGN in path.read_text()


@pytest.mark.parametrize(
    "torn", ["", "[", f"[{FOREIGN},{FOREIGN[:50]}", f"[{FOREIGN},{OURS_OF_BEFORE}]gone"]
)
@WAYS
async def test_a_list_that_stays_torn_is_fixed(
    path: Path, write: str, torn: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(torn)
    kept = int(FOREIGN in torn)
    async with Bench(path, write=write).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.rests()
        assert path.read_text() == torn
        bench.clock.seconds += under_test._REPAIR_SECONDS
        await bench.reads(f"a={short(0)}")
        await bench.rests()
    assert path.read_text().count(FOREIGN) == kept
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: was incomplete; podgpu replaced it, and kept {kept} entries of other writers"
    ]


async def test_a_change_between_reading_and_writing_is_not_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("[]")
    real, rest = os.fchmod, [FOREIGN, f"{FOREIGN},{FOREIGN}"]

    def fchmod(descriptor: int, mode: int) -> None:
        real(descriptor, mode)
        if rest:
            path.write_text(listing(rest.pop(0)))

    monkeypatch.setattr(os, "fchmod", fchmod)
    async with Bench(path).keeping() as bench:
        bench.holds(held("a", 0))
        await bench.reads(f"a={short(0)}")
    assert path.read_text().count(FOREIGN) == 2
    assert names(path.parent) == [path.name]


async def test_a_file_that_never_rests_is_left_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("[]")
    real, turn = os.fchmod, [0]

    def fchmod(descriptor: int, mode: int) -> None:
        real(descriptor, mode)
        turn[0] += 1
        path.write_text("[" + " " * turn[0] + "]")

    monkeypatch.setattr(os, "fchmod", fchmod)
    said = await refused(Bench(path))
    assert said == f"{path}: changes faster than it can be read and written"
    assert names(path.parent) == [path.name]


# -- a file system that doesn't answer


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every flush to the disk waits for the event."""
    answer = threading.Event()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        assert answer.wait(20)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(file_thread, "_TIMEOUT", 0.2)
    yield answer
    answer.set()


async def test_it_is_reported_of_and_takes_no_second_thread(
    path: Path, stuck: threading.Event
) -> None:
    bench = Bench(path)
    threads = threading.active_count()
    said = f"{path}: the file system has not responded for 0.2 s"
    assert await refused(bench) == said
    for _ in range(3):
        with pytest.raises(TransientError, match=said):
            await bench.sink.__aenter__()
    assert threading.active_count() <= threads + 1
    stuck.set()
    call = bench.sink._thread._call
    assert call is not None
    await until(call.done)
    assert ours(path) == [f"a={short(0)}"]
    async with bench.keeping():
        bench.holds(held("b", 0))
        await bench.reads(f"b={short(0)}")


async def test_leaving_does_not_wait_for_it(
    path: Path, stuck: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(path)

    async def work() -> None:
        async with bench.sink:
            await bench.sink.run(bench.inbox)

    task = asyncio.create_task(work())
    bench.holds(held("a", 0))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 1
    assert caplog.messages == [f"gave up on {path}: the last file operation does not return"]


async def test_a_short_wait_is_waited_for(path: Path, stuck: threading.Event) -> None:
    """What has begun when podgpu stops gets to its end, if that comes soon."""
    bench = Bench(path)

    async def work() -> None:
        async with bench.sink:
            await bench.sink.run(bench.inbox)

    task = asyncio.create_task(work())
    bench.holds(held("a", 0))
    await asyncio.sleep(0.1)
    task.cancel()
    asyncio.get_running_loop().call_later(0.1, stuck.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ours(path) == [f"a={short(0)}"]


def test_podgpu_ends_all_the_same(path: Path) -> None:
    program = textwrap.dedent(f"""
        import asyncio, os, pathlib, time
        os.fsync = lambda _: time.sleep(600)
        from tests.sinks.podlist.support import Bench, held

        async def main():
            bench = Bench(pathlib.Path({str(path)!r}))
            async with bench.sink:
                bench.holds(held("a", 0))
                task = asyncio.create_task(bench.sink.run(bench.inbox))
                await asyncio.sleep(0.3)
                task.cancel()
                await asyncio.wait([task])

        asyncio.run(main())
    """)
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, timeout=15)
