"""If podgpu is late, blocked or stopped, the runtime continues."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pipeline.model import ContainersReplaced
from sources.nri import stall_watchdog
from tests.fakes.nri import FakeRuntime, wire
from tests.sources.nri.source_runner import eventually, in_thread, running_source

ROOT = Path(__file__).parents[3]
POD = wire.pod()
LARGE = [f"FILLER_{n}={'x' * 100_000}" for n in range(6)]
"""More than a socket buffer holds: the runtime waits until the plugin reads it."""


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with FakeRuntime(tmp_path / "nri.sock") as started:
        yield started


@contextmanager
def starting_containers(runtime: FakeRuntime, env: list[str]) -> Iterator[list[str]]:
    """Start containers all the time; yield the ids of the running ones."""
    stop = threading.Event()
    started: list[str] = []

    def run() -> None:
        while not stop.wait(0.02):
            key = f"c{len(started)}"
            runtime.run(POD, key=key, env=env)
            started.append(key)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield started
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleeps", "computes"])
async def test_responses_do_not_wait_for_the_event_loop(runtime: FakeRuntime, how: str) -> None:
    async with running_source(runtime.path) as ctx:
        await ctx.wait_for(ContainersReplaced)
        (plugin,) = runtime.connections
        with starting_containers(runtime, LARGE) as started:
            end = time.monotonic() + 1.5
            if how == "sleeps":
                time.sleep(1.5)  # noqa: ASYNC251 - it blocks on purpose
            while time.monotonic() < end:
                sum(range(1000))
            during = len(started)
        assert during > 10
        assert plugin.slowest < 0.5
        assert runtime.dropped == []
        await ctx.until(*started)
        assert ctx.failures == []


@pytest.mark.slow
async def test_an_event_loop_that_is_late_ends_the_connection(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_watchdog, "LOOP_LATE", 0.5)
    runtime.pods["train-0"] = POD
    runtime.containers["train-0.main"] = wire.container(pid=1, state=3)
    async with running_source(runtime.path) as ctx:
        await ctx.wait_for(ContainersReplaced)
        time.sleep(1.5)  # noqa: ASYNC251 - it blocks on purpose
        assert not runtime.connections[0].alive
        await eventually(lambda: ctx.failures)
        assert "podgpu was blocked for" in str(ctx.failures[0])
        await ctx.wait_for(ContainersReplaced, 2)
        assert list(ctx.running()) == ["train-0.main"]


@pytest.mark.slow
async def test_a_message_that_takes_too_long_ends_the_connection(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.nri.plugin.read_pod", lambda _: time.sleep(2))
    async with running_source(runtime.path) as ctx:
        await ctx.wait_for(ContainersReplaced)
        start = time.monotonic()
        await in_thread(runtime.notify, "PostCreateContainer", POD, wire.container())
        await eventually(lambda: not runtime.connections[0].alive)
        assert 0.9 < time.monotonic() - start < 1.9
        await eventually(lambda: ctx.failures)
        assert "podgpu needed more than 1 s for a message" in str(ctx.failures[0])


BLOCKED = """
import asyncio, sys, time
from pathlib import Path
from sources.nri import stall_watchdog
from sources.nri.options import Options
from sources.nri.source import NriSource
from tests.support.contexts import FakeSourceContext

stall_watchdog.LOOP_LATE, stall_watchdog.LOOP_STUCK = 0.5, 1.5

async def main():
    source = NriSource(Options(socket=Path(sys.argv[1])))
    task = asyncio.create_task(source.run(FakeSourceContext()))
    await asyncio.sleep(0.5)
    print("stuck", flush=True)
    time.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
def test_an_event_loop_that_stays_blocked_ends_the_process(runtime: FakeRuntime) -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, runtime.path],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=20,
    )
    assert time.monotonic() - start < 15
    assert done.returncode == 1
    assert done.stdout == "stuck\n"
    assert done.stderr.startswith(
        "podgpu: it was blocked for 2 s (its event loop did not run); podgpu exits\n"
    )
    assert "in main" in done.stderr, "where it was blocked"


CONFIG = """
sources: {{runtime: {{kind: nri, socket: {socket}}}}}
sinks: {{lines: {{kind: jsonl, path: {folder}/lines}}}}
"""


@contextmanager
def podgpu(runtime: FakeRuntime, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run podgpu in its own process."""
    config = folder / "podgpu.yaml"
    config.write_text(CONFIG.format(socket=runtime.path, folder=folder))
    with subprocess.Popen(
        [sys.executable, "-m", "podgpu", "run", "-c", config],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_NAME": "node-1"},
    ) as process:
        try:
            runtime.wait_plugin(10)
            yield process
            assert process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.terminate()
            _, output = process.communicate(timeout=10)
            print(output)
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "least", "most"),
    [
        # It fits into the socket buffer: the runtime's own timeout ends the call.
        pytest.param([], 1.9, 4.5, id="small"),
        # It does not fit: the call takes as long as podgpu is stopped.
        pytest.param(LARGE, 4.9, 8, id="large"),
    ],
)
def test_the_runtime_continues_while_podgpu_is_stopped(
    runtime: FakeRuntime, tmp_path: Path, env: list[str], least: float, most: float
) -> None:
    with podgpu(runtime, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        # A thread on the other processor may continue for some milliseconds.
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != "T":
            time.sleep(0.001)
        thaw = threading.Timer(5, process.send_signal, [signal.SIGCONT])
        thaw.start()
        start = time.monotonic()
        runtime.run(POD, env=env)
        took = time.monotonic() - start
        thaw.join()
        assert least < took < most
        # Then it works again, on a new connection if its response came too late.
        runtime.wait_plugin(10)
        start = time.monotonic()
        runtime.run(POD, "later")
        assert time.monotonic() - start < 1
        assert len(runtime.connections) <= 2


PAUSED = """
import asyncio, sys
from pathlib import Path
from sources.nri import stall_watchdog
from sources.nri.options import Options
from sources.nri.source import NriSource
from tests.support.contexts import FakeSourceContext

stall_watchdog.LOOP_LATE, stall_watchdog.LOOP_STUCK = 1.0, 2.0

async def main():
    source = NriSource(Options(socket=Path(sys.argv[1])))
    task = asyncio.create_task(source.run(FakeSourceContext()))
    await asyncio.to_thread(sys.stdin.readline)
    print("running" if not task.done() else task.exception(), flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_stopped_process_is_not_taken_for_a_blocked_event_loop(runtime: FakeRuntime) -> None:
    """The watchdog counts its own wake-ups: a clock would have continued."""
    with subprocess.Popen(
        [sys.executable, "-c", PAUSED, runtime.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as process:
        runtime.wait_plugin(10)
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        time.sleep(1)
        output, _ = process.communicate("\n", timeout=10)
    assert output == "running\n"
    assert runtime.run(POD) == []
