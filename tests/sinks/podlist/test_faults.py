"""Each fault is reported with its fix, changes no other file, and ends when its cause ends."""

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
    OLD_OWN_ENTRY,
    OTHER_ENTRY,
    Bench,
    held,
    listing,
    names,
    podgpu_entries,
    until,
    uuids,
)
from tests.support.sinks import supervised

WAYS = pytest.mark.parametrize("write", ["rename", "inplace"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "pod-resources"
    folder.mkdir()
    return folder / "podlist.json"


async def failure_message(bench: Bench) -> str:
    """Return the error of a sink that should write."""
    bench.set_holders(held("a", 0))
    with pytest.raises(TransientError) as caught:
        async with asyncio.timeout(10), bench.sink:
            await bench.sink.run(bench.inbox)
    return str(caught.value)


def missing_folder(path: Path) -> None:
    path.parent.rmdir()


def folder_is_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.touch()


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def symbolic_link(path: Path) -> None:
    (path.parent / "real.json").write_text("[]")
    path.symlink_to("real.json")


def not_a_pod_list(path: Path) -> None:
    path.write_text("apiVersion: v1\n")


def too_large(path: Path) -> None:
    path.write_text("[" + " " * (10 << 20) + "]")


FAULTS: dict[Callable[[Path], None], str] = {
    missing_folder: "cannot write {path}: the folder {path.parent} does not exist: create or mount "
    "it",
    folder_is_a_file: "cannot write {path}: not a directory",
    folder: "{path}: is not a regular file",
    pipe: "{path}: is not a regular file",
    symbolic_link: "{path}: is a symbolic link; set path to the file that it points to",
    not_a_pod_list: "{path}: contains something other than a pod list; move it away, or set "
    "another path",
    too_large: "{path}: is larger than 10MiB, so it is not a pod list",
}


@WAYS
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_a_fault_at_the_start_is_an_error(
    path: Path, fault: Callable[[Path], None], write: str
) -> None:
    fault(path)
    bench = Bench(path, write=write)
    with pytest.raises(TransientError) as caught:
        await bench.sink.__aenter__()
    assert str(caught.value) == FAULTS[fault].format(path=path)


@pytest.mark.parametrize("fault", [folder, symbolic_link, not_a_pod_list], ids=lambda f: f.__name__)
async def test_a_fault_while_running_is_an_error_and_leaves_the_path_unchanged(
    path: Path, fault: Callable[[Path], None]
) -> None:
    bench = Bench(path)
    bench.set_holders(held("a", 0))
    async with bench.sink:
        fault(path)
        before = path.lstat()
        with pytest.raises(TransientError) as caught:
            await bench.sink.run(bench.inbox)
    assert str(caught.value) == FAULTS[fault].format(path=path)
    assert path.lstat() == before


ERRORS = {
    errno.EACCES: "permission denied: uid {uid} must be able to write {place}",
    errno.EPERM: "permission denied: uid {uid} must be able to write {place}",
    errno.EROFS: "the file system is read-only: mount {place} writable",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of uid {uid} is used up",
    errno.EIO: "input/output error",
}


@WAYS
@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
async def test_an_error_of_a_write_is_reported_and_leaves_the_file_unchanged(
    path: Path, write: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(listing(OTHER_ENTRY))
    real = os.open

    def opened(name: object, flags: int, *rest: int, **more: int) -> int:
        if flags & os.O_WRONLY:
            raise OSError(number, os.strerror(number))
        return real(name, flags, *rest, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        message = await failure_message(Bench(path, write=write))
    place = path if write == "inplace" else path.parent
    assert message == f"cannot write {path}: " + ERRORS[number].format(
        uid=os.geteuid(), place=place
    )
    assert path.read_text() == listing(OTHER_ENTRY)
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
async def test_a_partial_write_is_undone(path: Path, write: str) -> None:
    path.write_text(listing(OTHER_ENTRY))
    with file_size_limit(len(listing(OTHER_ENTRY)) + 9):
        message = await failure_message(Bench(path, write=write))
    assert message == f"cannot write {path}: file too large"
    assert path.read_text() == listing(OTHER_ENTRY)
    assert names(path.parent) == [path.name]


@WAYS
async def test_the_sink_recovers_once_the_folder_exists(
    path: Path, write: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the supervisor: down while the folder is missing, up and correct once it exists."""
    missing_folder(path)
    bench = Bench(path, write=write)

    async def sleep(_: float) -> None:
        await asyncio.sleep(0.01)

    monkeypatch.setattr(bench.clock, "sleep", sleep)
    async with supervised(bench.sink, bench.ctx, Channel(1)):
        bench.set_holders(held("a", 0))
        await bench.settle()
        assert bench.ctx.up == 0
        path.parent.mkdir()
        await bench.wait_for_entries(f"a={uuids(0)}")
        assert bench.ctx.up == 1
    assert "does not exist: create or mount it" in caplog.text


# -- lists that another program is writing, or left incomplete


async def test_podgpu_waits_for_another_writer_to_complete_its_list(path: Path) -> None:
    async with Bench(path).running() as bench:
        path.write_text(listing(OTHER_ENTRY)[:-20])
        bench.set_holders(held("a", 0))
        await bench.settle()
        assert path.read_text() == listing(OTHER_ENTRY)[:-20]
        path.write_text(listing(OTHER_ENTRY))
        await until(lambda: podgpu_entries(path) == [f"a={uuids(0)}"])
        assert OTHER_ENTRY in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "incomplete",
    ["", "[", f"[{OTHER_ENTRY},{OTHER_ENTRY[:50]}", f"[{OTHER_ENTRY},{OLD_OWN_ENTRY}]gone"],
)
@WAYS
async def test_a_list_that_stays_incomplete_is_repaired(
    path: Path, write: str, incomplete: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(incomplete)
    kept = int(OTHER_ENTRY in incomplete)
    async with Bench(path, write=write).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.settle()
        assert path.read_text() == incomplete
        bench.clock.seconds += under_test._REPAIR_SECONDS
        await bench.wait_for_entries(f"a={uuids(0)}")
        await bench.settle()
    assert path.read_text().count(OTHER_ENTRY) == kept
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: was incomplete; podgpu replaced it, and kept {kept} entries of other writers"
    ]


async def test_a_change_between_reading_and_writing_is_not_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("[]")
    real, rest = os.fchmod, [OTHER_ENTRY, f"{OTHER_ENTRY},{OTHER_ENTRY}"]

    def fchmod(descriptor: int, mode: int) -> None:
        real(descriptor, mode)
        if rest:
            path.write_text(listing(rest.pop(0)))

    monkeypatch.setattr(os, "fchmod", fchmod)
    async with Bench(path).running() as bench:
        bench.set_holders(held("a", 0))
        await bench.wait_for_entries(f"a={uuids(0)}")
    assert path.read_text().count(OTHER_ENTRY) == 2
    assert names(path.parent) == [path.name]


async def test_a_file_that_changes_all_the_time_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("[]")
    real, turn = os.fchmod, [0]

    def fchmod(descriptor: int, mode: int) -> None:
        real(descriptor, mode)
        turn[0] += 1
        path.write_text("[" + " " * turn[0] + "]")

    monkeypatch.setattr(os, "fchmod", fchmod)
    message = await failure_message(Bench(path))
    assert message == f"{path}: others change it faster than podgpu can update it"
    assert names(path.parent) == [path.name]


# -- a file system that does not respond


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let every flush to the disk wait for the event."""
    responds = threading.Event()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        assert responds.wait(20)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(file_thread, "_TIMEOUT", 0.2)
    yield responds
    responds.set()


@pytest.mark.slow
async def test_a_file_system_that_does_not_respond_is_reported_and_uses_one_thread(
    path: Path, stuck: threading.Event
) -> None:
    bench = Bench(path)
    threads = threading.active_count()
    message = f"{path}: the file system did not respond within 0.2 s"
    assert await failure_message(bench) == message
    for _ in range(3):
        with pytest.raises(TransientError, match=message):
            await bench.sink.__aenter__()
    assert threading.active_count() <= threads + 1
    stuck.set()
    call = bench.sink._thread._call
    assert call is not None
    await until(call.done)
    assert podgpu_entries(path) == [f"a={uuids(0)}"]
    async with bench.running():
        bench.set_holders(held("b", 0))
        await bench.wait_for_entries(f"b={uuids(0)}")


@pytest.mark.slow
async def test_a_stop_does_not_wait_for_a_file_system_that_does_not_respond(
    path: Path, stuck: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(path)

    async def work() -> None:
        async with bench.sink:
            await bench.sink.run(bench.inbox)

    task = asyncio.create_task(work())
    bench.set_holders(held("a", 0))
    await asyncio.sleep(0.1)
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 1
    text = "the last file operation has not returned; podgpu does not wait for it"
    assert caplog.messages == [f"{path}: {text}"]


async def test_a_stop_waits_for_a_write_that_ends_soon(path: Path, stuck: threading.Event) -> None:
    """A write that was started before podgpu stops is completed, if that takes a short time."""
    bench = Bench(path)

    async def work() -> None:
        async with bench.sink:
            await bench.sink.run(bench.inbox)

    task = asyncio.create_task(work())
    bench.set_holders(held("a", 0))
    await asyncio.sleep(0.1)
    task.cancel()
    asyncio.get_running_loop().call_later(0.1, stuck.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert podgpu_entries(path) == [f"a={uuids(0)}"]


@pytest.mark.slow
def test_the_process_ends_although_the_file_system_does_not_respond(path: Path) -> None:
    program = textwrap.dedent(f"""
        import asyncio, os, pathlib, time
        os.fsync = lambda _: time.sleep(600)
        from tests.sinks.podlist.support import Bench, held

        async def main():
            bench = Bench(pathlib.Path({str(path)!r}))
            async with bench.sink:
                bench.set_holders(held("a", 0))
                task = asyncio.create_task(bench.sink.run(bench.inbox))
                await asyncio.sleep(0.3)
                task.cancel()
                await asyncio.wait([task])

        asyncio.run(main())
    """)
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, timeout=15)
