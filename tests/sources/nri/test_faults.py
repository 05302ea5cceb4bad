"""Runtimes that are missing, refuse the plugin, disconnect, hang or send invalid data."""

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
from sources.nri.source import NriSource, ReconnectBackoff
from tests.fakes.nri import FakeRuntime, wire
from tests.fakes.nri.connection import PLUGIN, Connection
from tests.fakes.nri.rules import HEADER
from tests.sources.nri.source_runner import TrackingContext, eventually, in_thread, running_source
from tests.support.contexts import FakeSourceContext

Welcome = Callable[[FakeRuntime, Connection], None]


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with FakeRuntime(tmp_path / "nri.sock") as started:
        yield started


async def failures(path: Path, count: int = 1) -> list[str]:
    """Return the errors of the first runs."""
    async with running_source(path) as ctx:
        await eventually(lambda: len(ctx.failures) >= count)
        return [str(error).removeprefix(f"{path}: ") for error in ctx.failures[:count]]


class TestNoRuntime:
    async def test_a_missing_socket_is_an_error_with_a_fix(self, tmp_path: Path) -> None:
        (text,) = await failures(tmp_path / "nri.sock")
        assert text.startswith("the socket does not exist; enable NRI in the container runtime")

    async def test_a_missing_folder_is_the_same_error(self, tmp_path: Path) -> None:
        (text,) = await failures(tmp_path / "nri" / "nri.sock")
        assert text.startswith("the socket does not exist")

    async def test_a_socket_without_a_listener_means_that_the_runtime_is_down(
        self, tmp_path: Path
    ) -> None:
        with socket.socket(socket.AF_UNIX) as unused:
            unused.bind(str(tmp_path / "nri.sock"))
        (text,) = await failures(tmp_path / "nri.sock")
        assert text == "no process listens on the socket: the container runtime is down"

    async def test_a_regular_file_means_that_the_runtime_is_down(self, tmp_path: Path) -> None:
        (tmp_path / "nri.sock").touch()
        (text,) = await failures(tmp_path / "nri.sock")
        assert text == "no process listens on the socket: the container runtime is down"

    async def test_a_path_that_is_too_long_is_an_error_with_a_fix(self, tmp_path: Path) -> None:
        (text,) = await failures(tmp_path / ("x" * 120))
        assert "mount its folder at a shorter path" in text

    async def test_a_full_backlog_is_an_error(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
            listener.bind(str(tmp_path / "nri.sock"))
            listener.listen(0)
            first.connect(str(tmp_path / "nri.sock"))
            (text,) = await failures(tmp_path / "nri.sock")
        assert text == "too many connections are waiting for the runtime"


def hang_up(_: FakeRuntime, connection: Connection) -> None:
    connection.close()


def refuse_the_plugin(_: FakeRuntime, connection: Connection) -> None:
    call = connection.calls.get(timeout=5)
    assert call is not None
    connection.answer(call[0], code=2, text='invalid plugin index "90"')
    # A real runtime leaves the connection open, and does not use it.


def only_configure(runtime: FakeRuntime, connection: Connection) -> None:
    runtime.register(connection)
    runtime.configure(connection)
    connection.close()


def disconnect_during_synchronization(runtime: FakeRuntime, connection: Connection) -> None:
    runtime.register(connection)
    runtime.configure(connection)
    answer = connection.call("Synchronize", wire.message({3: 1}), 1e9)
    assert answer == b"\x10\x01"
    connection.close()


def refuse_the_mask(runtime: FakeRuntime, connection: Connection) -> None:
    runtime.valid = 0x0001
    runtime.accept(connection)


EARLY_DISCONNECT = "the runtime closed the connection before it had listed all containers"


@pytest.mark.parametrize(
    ("welcome", "text"),
    [
        (hang_up, "the runtime closed the connection before it sent podgpu its configuration"),
        (refuse_the_plugin, 'the runtime refuses the plugin: invalid plugin index "90"'),
        (only_configure, EARLY_DISCONNECT),
        (disconnect_during_synchronization, EARLY_DISCONNECT),
        (refuse_the_mask, EARLY_DISCONNECT),
    ],
)
async def test_the_reason_of_an_early_disconnect_is_reported(
    runtime: FakeRuntime, welcome: Welcome, text: str
) -> None:
    runtime.welcome = lambda connection: welcome(runtime, connection)
    assert await failures(runtime.path) == [text]


async def test_a_runtime_that_does_not_synchronize_times_out(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_SYNC_TIMEOUT_NS", 200_000_000)
    stalled = threading.Event()
    runtime.welcome = lambda _: cast(None, stalled.wait(10))
    assert await failures(runtime.path) == ["the runtime did not synchronize within 0 s"]
    stalled.set()


@pytest.mark.slow
async def test_there_is_no_timeout_after_synchronization(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_SYNC_TIMEOUT_NS", 200_000_000)
    async with running_source(runtime.path) as ctx:
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
            "the runtime sent an invalid message of type Request",
        ),
        (
            struct.pack(">II", 2, 11) + HEADER.pack(1, 1, 2, 0) + b"\xff",
            "the runtime sent an invalid message of type Response",
        ),
    ],
)
async def test_invalid_data_ends_the_connection_and_podgpu_reconnects(
    runtime: FakeRuntime, data: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_source(runtime.path) as ctx:
        plugin = await in_thread(runtime.wait_plugin)
        await ctx.wait_for(ContainersReplaced)
        plugin.raw(data)
        await eventually(lambda: ctx.failures)
        assert text in str(ctx.failures[0])
        await ctx.wait_for(ContainersReplaced, 2)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def test_an_internal_error_ends_the_source_and_the_runtime_gets_a_response(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in podgpu ends the source and podgpu, as usual; the runtime still gets a response."""

    def broken(_: bytes) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("sources.nri.plugin.read_pod", broken)
    task = asyncio.create_task(NriSource(Options(socket=runtime.path)).run(TrackingContext()))
    await in_thread(runtime.wait_plugin)
    assert await in_thread(runtime.notify, "PostStartContainer", b"", b"") == [b""]
    with pytest.raises(ZeroDivisionError, match="by zero"):
        await task


async def test_an_invalid_event_is_answered_before_the_connection_ends(
    runtime: FakeRuntime,
) -> None:
    async with running_source(runtime.path) as ctx:
        await ctx.wait_for(ContainersReplaced)
        assert await in_thread(runtime.notify, "PostStartContainer", b"\xff", b"\xff") == [b""]
        await eventually(lambda: ctx.failures)
        assert str(ctx.failures[0]).endswith(
            "the runtime sent an invalid message of type PodSandbox"
        )


async def test_a_runtime_that_does_not_read_responses_is_disconnected(tmp_path: Path) -> None:
    """The thread must not block on sending: it would no longer read either."""
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
        await in_thread(thread.join)


class BriefClock(SystemClock):
    """Record the delays of sleeps, and sleep only briefly."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if seconds != 30:  # the interval of confirmations
            self.delays.append(seconds)
        await super().sleep(0.001 if seconds != 30 else 30)


class Supervised(FakeSourceContext):
    has_emitted = False


async def run_until_delays(
    path: Path, times: int, longest: float = 0
) -> tuple[Supervised, list[float]]:
    """Run the source until it slept some times, once at least this long; return the delays."""
    clock = BriefClock()
    ctx = Supervised("runtime", clock)
    source = NriSource(Options(socket=path))
    task = asyncio.create_task(supervise_source(source, cast(Any, ctx), fatal=True))
    await eventually(lambda: len(clock.delays) >= times and max(clock.delays) >= longest, 10)
    task.cancel()
    await asyncio.wait([task])
    return ctx, clock.delays


async def test_delays_between_connections_grow_to_a_minute(tmp_path: Path) -> None:
    _, delays = await run_until_delays(tmp_path / "nri.sock", 9)
    for seconds, base in zip(delays[:9], [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert base <= seconds <= 1.25 * base


class TestRepeatedDisconnects:
    async def test_after_three_early_disconnects_the_delays_are_minutes(
        self, runtime: FakeRuntime
    ) -> None:
        runtime.welcome = lambda connection: disconnect_during_synchronization(runtime, connection)
        ctx, delays = await run_until_delays(runtime.path, 7)
        for seconds, base in zip(delays[:7], [1, 2, 300, 600, 1200, 2400, 3600], strict=True):
            assert base <= seconds <= 1.25 * base
        reasons = [event.reason for event in ctx.events if isinstance(event, SourceLost)]
        assert reasons[1] == f"{runtime.path}: {EARLY_DISCONNECT}"
        assert reasons[2] == (
            f"{runtime.path}: {EARLY_DISCONNECT}, 3 times in a row while the runtime listed its "
            "containers; this may make the runtime fail, so podgpu waits 5 min before it "
            "reconnects; the other sources continue"
        )
        assert reasons[3].endswith("waits 10 min before it reconnects; the other sources continue")

    async def test_a_runtime_that_is_down_in_between_does_not_reset_the_count(
        self, runtime: FakeRuntime
    ) -> None:
        def crash(connection: Connection) -> None:
            try:
                disconnect_during_synchronization(runtime, connection)
            finally:
                runtime.path.unlink()
                runtime.path.touch()
                threading.Timer(0.05, runtime.start).start()

        runtime.welcome = crash
        await run_until_delays(runtime.path, 3, longest=300)

    async def test_a_successful_connection_resets_the_count(self, runtime: FakeRuntime) -> None:
        turns = iter(range(1000))

        def sometimes(connection: Connection) -> None:
            if next(turns) % 3 == 2:
                runtime.accept(connection)
                connection.close()
            else:
                disconnect_during_synchronization(runtime, connection)

        runtime.welcome = sometimes
        _, delays = await run_until_delays(runtime.path, 12)
        assert max(delays) <= 75

    async def test_a_reload_does_not_reset_the_count(self, runtime: FakeRuntime) -> None:
        runtime.welcome = lambda connection: disconnect_during_synchronization(runtime, connection)
        ctx = TrackingContext()
        for count in (1, 2, 3):
            async with running_source(runtime.path, ctx):
                await eventually(lambda: len(ctx.failures) >= count)  # noqa: B023
            ctx.failures[count:] = []
        assert ctx.failures[2].retry_after is not None

    def test_the_delay_after_each_number_of_disconnects(self) -> None:
        backoff = ReconnectBackoff()
        pauses = [backoff.record_loss() for _ in range(20)]
        assert pauses[:8] == [None, None, 300, 600, 1200, 2400, 3600, 3600]
        assert pauses[-1] == 3600
        backoff.count = 0
        assert backoff.record_loss() is None


@pytest.mark.slow
async def test_random_bytes_after_synchronization_end_the_connection(runtime: FakeRuntime) -> None:
    rng = random.Random(3)
    async with running_source(runtime.path) as ctx:
        for count in range(1, 15):
            await ctx.wait_for(ContainersReplaced, count)
            await eventually(lambda: runtime.connections[-1].mask)
            plugin = runtime.connections[-1]
            with suppress(OSError):
                plugin.raw(rng.randbytes(rng.randint(1, 5000)))
            plugin.close()
            await eventually(lambda: len(ctx.failures) >= count)  # noqa: B023
