"""Lines on standard output, with a reader that is slow, stuck or has ended."""

import asyncio
import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.channels import Channel
from pipeline.base.errors import TransientError
from pipeline.model import Instant
from sinks.jsonl import line_writer
from sinks.jsonl import sink as sink_module
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.target import StreamTarget, WriteFault
from tests.sinks.jsonl.support import Bench, options, parsed
from tests.support.nodes import START, gpu, reading

Pipe = tuple[int, int]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Replace standard output by a small pipe."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    monkeypatch.setattr(line_writer, "_STDOUT_FD", write_end)
    yield read_end, write_end
    for fd in (read_end, write_end):
        with contextlib.suppress(OSError):
            os.close(fd)


def read_lines(read_end: int, count: int) -> bytes:
    """Read until this number of lines was received."""
    text = b""
    while text.count(b"\n") < count:
        text += os.read(read_end, 65536)
    return text


async def test_lines_are_written_to_standard_output(pipe: Pipe) -> None:
    bench = Bench(options())
    async with bench.writing():
        await bench.write(2)
    lines = parsed(read_lines(pipe[0], 2))
    assert [line["readings"] for line in lines] == [{"power_watts": 1}, {"power_watts": 2}]
    assert bench.emitted == 2


async def test_j3_an_ended_reader_is_a_transient_error(pipe: Pipe) -> None:
    bench = Bench(options())

    async def write() -> None:
        async with bench.writing():
            await bench.write(1)
            os.close(pipe[0])
            await bench.write(1)

    with pytest.raises(TransientError, match="no process reads standard output"):
        await write()
    assert (bench.emitted, bench.dropped) == (1, {"closed_pipe": 1})
    with pytest.raises(TransientError, match="no process reads it"):
        await bench.sink.__aenter__()


@pytest.mark.slow
async def test_j3_a_stuck_reader_does_not_block_the_event_loop(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sink_module, "_SLOW_WRITE_S", 0.2)
    monkeypatch.setattr(line_writer, "_CLOSE_TIMEOUT_S", 0.2)
    bench = Bench(options())
    async with bench.sink:
        running = asyncio.create_task(bench.sink.run(bench.inbox))
        for _ in range(50):
            bench.send()
        slept, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.5:
            await asyncio.sleep(0.01)
            slept += 1
        assert slept > 20
        assert not running.done()
        # The thread is writing one; the others wait in the inbox, where they can be dropped.
        assert len(bench.inbox) + bench.emitted + 1 == 50
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert time.perf_counter() - start < 3
    assert bench.dropped == {"stopped": 1}
    assert caplog.text.count("has accepted no data") == 1
    assert "no longer waiting for standard output" in caplog.text
    # The thread still completes its batch: no line is partial.
    parsed(await asyncio.to_thread(read_lines, pipe[0], int(bench.emitted) + 1))


async def test_j3_lines_for_a_stuck_reader_are_bounded_and_drops_counted(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_writer, "_CLOSE_TIMEOUT_S", 0.1)
    bench = Bench(options())
    lost: list[int] = []
    bench.inbox = Channel(8, on_drop=lambda snapshot: lost.append(len(snapshot.fresh)))
    async with bench.writing():
        for number in range(200):
            bench.send()
            await asyncio.sleep(0.002 if number < 50 else 0)  # until the pipe is full
        assert len(bench.inbox) == 8
        # The thread is writing one more.
        assert bench.sent == bench.emitted + 1 + 8 + sum(lost)
        remaining = bench.sent - sum(lost)
        lines = parsed(await asyncio.to_thread(read_lines, pipe[0], remaining))
    # The oldest are dropped, so the newest are the last lines.
    values = [line["readings"]["power_watts"] for line in lines]
    assert values[-8:] == list(range(193, 201))
    assert bench.emitted == remaining


@pytest.mark.parametrize(
    ("result", "emitted", "dropped"),
    [
        (None, 3, {}),
        (WriteFault(0, OSError(errno.ENOSPC, "full")), 0, {"no_space": 3}),
        (WriteFault(0, OSError(errno.EPIPE, "gone")), 0, {"closed_pipe": 3}),
        (ZeroDivisionError("a bug"), 0, {"stopped": 3}),
        (..., 0, {"stopped": 3}),
    ],
    ids=["written", "no space", "no reader", "a bug", "hangs"],
)
async def test_a_write_in_flight_at_a_stop_is_counted_by_its_result(
    pipe: Pipe,
    monkeypatch: pytest.MonkeyPatch,
    result: object,
    emitted: int,
    dropped: dict[str, int],
) -> None:
    started, finish = threading.Event(), threading.Event()

    def write(*_: object) -> object:
        started.set()
        finish.wait(10)
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(StreamTarget, "write", write)
    monkeypatch.setattr(line_writer, "_CLOSE_TIMEOUT_S", 0.05)
    bench = Bench(options())
    async with bench.sink:
        running = asyncio.create_task(bench.sink.run(bench.inbox))
        bench.send(*(reading(gpu(0), name, 1) for name in ("power_watts", "xid_last", "gpu_up")))
        while not started.is_set():
            await asyncio.sleep(0.001)
        if result is not ...:
            # The write completes, and the sink is stopped before the event loop runs again.
            finish.set()
            time.sleep(0.1)  # noqa: ASYNC251 - the event loop must not run
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    finish.set()
    assert (bench.emitted, bench.dropped) == (emitted, dropped)


async def test_a_reader_that_reads_again_gets_all_lines(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "_SLOW_WRITE_S", 0.05)
    bench = Bench(options())
    async with bench.writing():
        for _ in range(50):
            bench.send()
        await asyncio.sleep(0.2)
        lines = parsed(await asyncio.to_thread(read_lines, pipe[0], 50))
    assert [line["readings"]["power_watts"] for line in lines] == list(range(1, 51))


async def test_a_non_blocking_stream_gets_all_lines(pipe: Pipe) -> None:
    os.set_blocking(pipe[1], False)
    bench = Bench(options())
    async with bench.writing():
        for _ in range(50):
            bench.send()
        assert len(parsed(await asyncio.to_thread(read_lines, pipe[0], 50))) == 50


async def test_lines_of_two_sinks_are_not_mixed(pipe: Pipe) -> None:
    first, second = Bench(options()), Bench(options())
    async with first.writing(), second.writing():
        for _ in range(40):
            first.send()
            second.send()
        assert len(parsed(await asyncio.to_thread(read_lines, pipe[0], 80))) == 80


@pytest.mark.slow
def test_the_process_ends_while_no_one_reads() -> None:
    program = textwrap.dedent("""
        import asyncio, sys
        from tests.sinks.jsonl.support import Bench, options

        async def main():
            bench = Bench(options())
            async with bench.sink:
                running = asyncio.create_task(bench.sink.run(bench.inbox))
                for _ in range(900):
                    bench.send()
                await asyncio.sleep(0.2)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            print("ended", file=sys.stderr, flush=True)
        asyncio.run(main())
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as podgpu:
        assert podgpu.wait(20) == 0
        assert podgpu.stderr is not None
        assert b"Traceback" not in podgpu.stderr.read()


NOW = Instant(START.mono_ns, START.wall_ns)


@pytest.mark.parametrize(
    ("capacity", "lines"), [(0, 0), (3, 1), (5, 1), (6, 2), (9, 2), (10, 2), (11, 3), (14, 3)]
)
def test_a_partly_written_line_is_completed_by_the_next_write(
    monkeypatch: pytest.MonkeyPatch, capacity: int, lines: int
) -> None:
    out = b""

    def write_until_full(fd: int, data: bytes) -> int:
        nonlocal out
        taken = bytes(data[: capacity - len(out)])
        if not taken:
            raise OSError(28, "No space left on device")
        out += taken
        return len(taken)

    target = StreamTarget(99, owned=False)
    batch = Batch([b"aaaa\n", b"bbbb\n", b"cccc\n"], [1, 1, 1])
    monkeypatch.setattr(os, "write", write_until_full)
    for written in (lines, 0):
        fault = target.write(batch, NOW)
        assert fault is not None
        assert fault.lines == written
    capacity = 100
    target.write(Batch([b"dddd\n"], [1]), NOW)
    assert out == b"".join([*batch.lines[:lines], b"dddd\n"])


@pytest.mark.slow
def test_j3_a_closed_pipe_stops_only_one_sink(tmp_path: Path) -> None:
    path, config = tmp_path / "gpu.jsonl", tmp_path / "c.yaml"
    config.write_text(
        "sources: {node: {kind: replay, path: 'builtin:demo', loop: true}}\n"
        "sinks:\n"
        "  out: {kind: jsonl}\n"
        f"  file: {{kind: jsonl, path: {path}, telemetry_interval: 100ms}}\n"
    )
    command = [sys.executable, "-m", "podgpu", "run", "-c", str(config)]

    def up() -> float | None:
        """Return `podgpu_sink_up` of the sink `out` in the last line that has it."""
        found = None
        text = path.read_bytes() if path.exists() else b""
        for line in parsed(text[: text.rfind(b"\n") + 1]):
            for metric in line.get("metrics", ()):
                if (metric["name"], metric["labels"]) == ("podgpu_sink_up", {"sink": "out"}):
                    found = metric["value"]
        return found

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as podgpu:
        assert podgpu.stdout is not None
        assert podgpu.stderr is not None
        assert podgpu.stdout.readline().startswith(b'{"record":')
        podgpu.stdout.close()
        end = time.monotonic() + 15
        while up() != 0:
            assert time.monotonic() < end
            time.sleep(0.05)
        size = path.stat().st_size
        while path.stat().st_size < size + 2000:
            assert time.monotonic() < end
            time.sleep(0.05)
        podgpu.terminate()
        assert podgpu.wait(15) == 0
        log = podgpu.stderr.read()
    # Retried at growing intervals, and not with each snapshot.
    assert 1 <= log.count(b"; retrying") <= 6, log
    assert b"no process reads standard output any more" in log
    assert b"Traceback" not in log
