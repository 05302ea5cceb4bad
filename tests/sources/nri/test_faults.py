"""Runtimes that are not there, refuse, break off, hang or say what no runtime says."""

import asyncio
import logging
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from pipeline.base.clock import SystemClock
from pipeline.model import ContainersReplaced, SourceLost
from pipeline.runtime.supervision import supervise_source
from sources.nri import connection as link
from sources.nri.options import Options
from sources.nri.reconnect import ReconnectBackoff
from sources.nri.source import NriSource
from tests.fakes.nri import FakeRuntime, wire
from tests.fakes.nri.connection import PLUGIN, Connection
from tests.fakes.nri.rules import HEADER
from tests.sources.nri.running import Following, aside, eventually, following
from tests.support.contexts import FakeSourceContext

Welcome = Callable[[FakeRuntime, Connection], None]


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with FakeRuntime(tmp_path / "nri.sock") as made:
        yield made


async def failures(path: Path, count: int = 1) -> list[str]:
    """Return why the first runs ended."""
    async with following(path) as ctx:
        await eventually(lambda: len(ctx.failures) >= count)
        return [str(error).removeprefix(f"{path}: ") for error in ctx.failures[:count]]


class TestNoOneThere:
    async def test_no_socket(self, tmp_path: Path) -> None:
        (text,) = await failures(tmp_path / "nri.sock")
        assert text.startswith("the socket does not exist; enable NRI in the container runtime")

    async def test_no_folder(self, tmp_path: Path) -> None:
        (text,) = await failures(tmp_path / "nri" / "nri.sock")
        assert text.startswith("the socket does not exist")

    async def test_no_one_listens(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as unheard:
            unheard.bind(str(tmp_path / "nri.sock"))
        (text,) = await failures(tmp_path / "nri.sock")
        assert text == "no process listens on the socket: the container runtime is down"

    async def test_no_socket_but_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "nri.sock").touch()
        (text,) = await failures(tmp_path / "nri.sock")
        assert text == "no process listens on the socket: the container runtime is down"

    async def test_a_path_that_is_too_long(self, tmp_path: Path) -> None:
        (text,) = await failures(tmp_path / ("x" * 120))
        assert "mount its folder at a shorter path" in text

    async def test_too_many_wait(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
            listener.bind(str(tmp_path / "nri.sock"))
            listener.listen(0)
            first.connect(str(tmp_path / "nri.sock"))
            (text,) = await failures(tmp_path / "nri.sock")
        assert text == "too many connections are waiting for the runtime"


def hang_up(_: FakeRuntime, connection: Connection) -> None:
    connection.close()


def refuse(_: FakeRuntime, connection: Connection) -> None:
    call = connection.calls.get(timeout=5)
    assert call is not None
    connection.answer(call[0], code=2, text='invalid plugin index "90"')
    # The real one leaves it open and dead.


def configure_alone(runtime: FakeRuntime, connection: Connection) -> None:
    runtime.register(connection)
    runtime.configure(connection)
    connection.close()


def break_off(runtime: FakeRuntime, connection: Connection) -> None:
    runtime.register(connection)
    runtime.configure(connection)
    answer = connection.call("Synchronize", wire.message({3: 1}), 1e9)
    assert answer == b"\x10\x01"
    connection.close()


def dislike_the_mask(runtime: FakeRuntime, connection: Connection) -> None:
    runtime.valid = 0x0001
    runtime.take(connection)


LATER = "the runtime closed the connection before it had listed all containers"


@pytest.mark.parametrize(
    ("welcome", "text"),
    [
        (hang_up, "the runtime closed the connection before it asked which events podgpu needs"),
        (refuse, 'the runtime refuses the plugin: invalid plugin index "90"'),
        (configure_alone, LATER),
        (break_off, LATER),
        (dislike_the_mask, LATER),
    ],
)
async def test_the_runtime_breaks_off(runtime: FakeRuntime, welcome: Welcome, text: str) -> None:
    runtime.welcome = lambda connection: welcome(runtime, connection)
    assert await failures(runtime.path) == [text]


async def test_a_runtime_that_says_nothing_is_given_up(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_SYNC_TIMEOUT_NS", 200_000_000)
    stalled = threading.Event()
    runtime.welcome = lambda _: cast(None, stalled.wait(10))
    assert await failures(runtime.path) == ["the runtime did not synchronize within 0 s"]
    stalled.set()


async def test_once_synchronized_it_waits_for_ever(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_SYNC_TIMEOUT_NS", 200_000_000)
    async with following(runtime.path) as ctx:
        await ctx.wait_for(ContainersReplaced)
        await asyncio.sleep(0.5)
        assert ctx.failures == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "the runtime announced a frame of 790644820 bytes",
        ),
        (
            struct.pack(">II", 1, 10) + HEADER.pack(1 << 30, 1, 1, 0),
            "the runtime announced a message of",
        ),
        (
            struct.pack(">II", 1, 11) + HEADER.pack(1, 1, 1, 0) + b"\xff",
            "the runtime sent an invalid request",
        ),
        (
            struct.pack(">II", 2, 11) + HEADER.pack(1, 1, 2, 0) + b"\xff",
            "the runtime sent an invalid response",
        ),
    ],
)
async def test_what_no_runtime_says(
    runtime: FakeRuntime, data: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(runtime.path) as ctx:
        plugin = await aside(runtime.wait_plugin)
        await ctx.wait_for(ContainersReplaced)
        plugin.raw(data)
        await eventually(lambda: ctx.failures)
        assert text in str(ctx.failures[0])
        await ctx.wait_for(ContainersReplaced, 2)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_fault_of_ours_is_no_fault_of_the_connection(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the source, and podgpu with it, as any other; the runtime has its answer."""

    def broken(_: bytes) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("sources.nri.plugin.read_pod", broken)
    task = asyncio.create_task(NriSource(Options(socket=runtime.path)).run(Following()))
    await aside(runtime.wait_plugin)
    assert await aside(runtime.tell, "PostStartContainer", b"", b"") == [b""]
    with pytest.raises(ZeroDivisionError, match="by zero"):
        await task


async def test_an_event_that_cannot_be_read_is_answered_first(runtime: FakeRuntime) -> None:
    async with following(runtime.path) as ctx:
        await ctx.wait_for(ContainersReplaced)
        assert await aside(runtime.tell, "PostStartContainer", b"\xff", b"\xff") == [b""]
        await eventually(lambda: ctx.failures)
        assert str(ctx.failures[0]).endswith("the runtime sent an invalid PodSandbox")


async def test_a_runtime_that_reads_no_answers(tmp_path: Path) -> None:
    """The thread must not wait for it: it would no longer read either."""
    path = tmp_path / "nri.sock"

    def flood(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock, suppress(OSError):
            for number in range(1, 200_000, 2):
                data = wire.message({1: PLUGIN, 2: "StopContainer"})
                message = HEADER.pack(len(data), number, 1, 0) + data
                sock.sendall(struct.pack(">II", 1, len(message)) + message)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=flood, args=(listener,))
        thread.start()
        assert await failures(path) == ["the runtime does not read podgpu's responses"]
        await aside(thread.join)


class Patient(SystemClock):
    """Keeps how long was slept, and sleeps shortly."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if seconds != 30:  # that is how often it stands by its word
            self.slept.append(seconds)
        await super().sleep(0.001 if seconds != 30 else 30)


class Supervised(FakeSourceContext):
    has_emitted = False


async def until_slept(path: Path, times: int, longest: float = 0) -> tuple[Supervised, list[float]]:
    """Return how long was slept, so many times and until it was so long."""
    clock = Patient()
    ctx = Supervised("runtime", clock)
    source = NriSource(Options(socket=path))
    task = asyncio.create_task(supervise_source(source, cast(Any, ctx), fatal=True))
    await eventually(lambda: len(clock.slept) >= times and max(clock.slept) >= longest, 10)
    task.cancel()
    await asyncio.wait([task])
    return ctx, clock.slept


async def test_it_comes_back_less_and_less_often(tmp_path: Path) -> None:
    _, slept = await until_slept(tmp_path / "nri.sock", 9)
    for seconds, base in zip(slept[:9], [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert base <= seconds <= 1.25 * base


class TestTheRuntimeMayNotBearIt:
    async def test_after_three_it_is_left_alone(self, runtime: FakeRuntime) -> None:
        runtime.welcome = lambda it: break_off(runtime, it)
        ctx, slept = await until_slept(runtime.path, 7)
        for seconds, base in zip(slept[:7], [1, 2, 300, 600, 1200, 2400, 3600], strict=True):
            assert base <= seconds <= 1.25 * base
        reasons = [event.reason for event in ctx.events if isinstance(event, SourceLost)]
        assert reasons[1] == f"{runtime.path}: {LATER}"
        assert reasons[2] == (
            f"{runtime.path}: {LATER}, 3 times in a row; the runtime may fail because of it, so "
            "podgpu waits 5 min before it reconnects; the other sources continue"
        )
        assert reasons[3].endswith("waits 10 min before it reconnects; the other sources continue")

    async def test_a_runtime_that_crashed_and_is_down_counts_no_less(
        self, runtime: FakeRuntime
    ) -> None:
        def crash(connection: Connection) -> None:
            try:
                break_off(runtime, connection)
            finally:
                runtime.path.unlink()
                runtime.path.touch()
                threading.Timer(0.05, runtime.start).start()

        runtime.welcome = crash
        await until_slept(runtime.path, 3, longest=300)

    async def test_what_works_once_restarts(self, runtime: FakeRuntime) -> None:
        turns = iter(range(1000))

        def sometimes(connection: Connection) -> None:
            if next(turns) % 3 == 2:
                runtime.take(connection)
                connection.close()
            else:
                break_off(runtime, connection)

        runtime.welcome = sometimes
        _, slept = await until_slept(runtime.path, 12)
        assert max(slept) <= 75

    async def test_a_reload_does_not_forget_it(self, runtime: FakeRuntime) -> None:
        runtime.welcome = lambda it: break_off(runtime, it)
        ctx = Following()
        for count in (1, 2, 3):
            async with following(runtime.path, ctx):
                await eventually(lambda: len(ctx.failures) >= count)  # noqa: B023
            ctx.failures[count:] = []
        assert ctx.failures[2].retry_after is not None

    def test_the_count(self) -> None:
        losses = ReconnectBackoff()
        pauses = [losses.record_loss() for _ in range(20)]
        assert pauses[:8] == [None, None, 300, 600, 1200, 2400, 3600, 3600]
        assert pauses[-1] == 3600
        losses.reset()
        assert losses.record_loss() is None


async def test_random_bytes_after_a_good_beginning(runtime: FakeRuntime) -> None:
    rng = random.Random(3)
    async with following(runtime.path) as ctx:
        for count in range(1, 15):
            await ctx.wait_for(ContainersReplaced, count)
            await eventually(lambda: runtime.connections[-1].mask)
            plugin = runtime.connections[-1]
            with suppress(OSError):
                plugin.raw(rng.randbytes(rng.randint(1, 5000)))
            plugin.close()
            await eventually(lambda: len(ctx.failures) >= count)  # noqa: B023
