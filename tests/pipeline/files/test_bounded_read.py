"""Files are read without waiting for a pipe's writer or for a file system that does not respond."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from config.value_types import ByteSize
from pipeline.files.bounded_read import (
    Content,
    UnreadableError,
    opened,
    read_file,
    read_local_file,
)

LIMIT = ByteSize(3 << 20)


async def read_in_both_ways(path: Path) -> Content:
    found = await read_local_file(path, LIMIT, None)
    assert await asyncio.to_thread(read_file, path, LIMIT, None) == found
    return found


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 3 << 20])
async def test_both_functions_return_the_whole_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    found = await read_in_both_ways(path)
    assert found.data == path.read_bytes()
    assert await read_local_file(path, LIMIT, found.stamp) == Content(found.stamp, None)
    assert await asyncio.to_thread(read_file, path, LIMIT, found.stamp) == Content(
        found.stamp, None
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (lambda path: path.write_bytes(b"x" * (LIMIT + 1)), "is larger than the maximum of 3MiB"),
        (lambda path: path.symlink_to("none"), "no such file"),
    ],
    ids=["pipe", "folder", "too large", "absent"],
)
async def test_both_functions_refuse_the_same_files(tmp_path: Path, make: Any, text: str) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(UnreadableError) as caught:
        await read_local_file(path, LIMIT, None)
    assert str(caught.value) == f"{path}: {text}"
    with pytest.raises(UnreadableError) as caught:
        await asyncio.to_thread(read_file, path, LIMIT, None)
    assert str(caught.value) == f"{path}: {text}"


def open_files() -> list[Path]:
    return [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let the opening of every file wait for the event."""
    responds, real = threading.Event(), os.open

    def slow(*args: Any, **more: Any) -> int:
        assert responds.wait(20)
        return real(*args, **more)

    monkeypatch.setattr(os, "open", slow)
    yield responds
    responds.set()


@pytest.mark.slow
async def test_a_cancelled_reader_does_not_wait_and_its_file_is_closed_later(
    tmp_path: Path, stuck: threading.Event
) -> None:
    path = tmp_path / "file"
    os.mknod(path)
    reading = asyncio.create_task(read_local_file(path, LIMIT, None))
    await asyncio.sleep(0.1)
    start = time.monotonic()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert time.monotonic() - start < 1
    stuck.set()
    async with asyncio.timeout(5):
        while any(task is not asyncio.current_task() for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)
    assert path not in open_files()


@pytest.mark.parametrize("when", ["while it is opened", "while it is read"])
def test_a_file_is_closed_although_the_event_loop_ends_first(tmp_path: Path, when: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    blocked = threading.Event()

    async def read() -> None:
        if when == "while it is opened":
            threads.submit(blocked.wait, 10)
        async with opened(path) as file:
            threads.submit(blocked.wait, 10)
            await file.read(1)

    async def cancel_a_reader() -> None:
        reading = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        reading.cancel()

    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as threads:
        loop.set_default_executor(threads)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(cancel_a_reader())
            threading.Timer(0.1, blocked.set).start()
    # A file that is closed by the garbage collector fails the test with a ResourceWarning.
    assert path not in open_files()


@pytest.mark.slow
def test_the_process_ends_although_the_file_does_not_respond(tmp_path: Path) -> None:
    path = tmp_path / "podlist.json"
    path.write_text("[]")
    config = tmp_path / "podgpu.yaml"
    config.write_text(
        f"sources: {{pods: {{kind: podlist, path: {path}}}}}\nsinks: {{}}\n"
        "http: {listen: '127.0.0.1:0'}\n"
    )
    program = textwrap.dedent(f"""
        import os, signal, sys, threading, time
        real = os.open

        def slow(path, *args, **more):
            if os.fspath(path) == {str(path)!r}:
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
                time.sleep(600)
            return real(path, *args, **more)

        os.open = slow
        from podgpu.cli import program
        sys.argv = ["podgpu", "run", "--config", {str(config)!r}]
        program()
    """)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, check=False, timeout=20, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
