"""Lines that cannot be written wait in a queue; later each is written once, the oldest first."""

import asyncio
import contextlib
import errno
import fcntl
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from config.value_types import Duration
from pipeline.component.registry import RegisteredKinds
from pipeline.delivery.contract import Record
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.model import Instant
from sinks.jsonl import line_writer, queued_lines, sink
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.target import WriteFault
from tests.sinks.jsonl.support import Bench, options, parsed, watts
from tests.sinks.jsonl.test_killed import killing, numbered
from tests.sinks.jsonl.test_rotating_file import file_size_limit

MEMORY = QueueOptions()
Pipe = tuple[int, int]


def on_disk(folder: Path) -> QueueOptions:
    return QueueOptions(path=folder / "queue")


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    retry = RetryOptions(initial=Duration.parse("10ms"), max=Duration.parse("20ms"))
    monkeypatch.setattr(sink, "_RETRY", retry)
    monkeypatch.setattr(queued_lines, "_SLOW_WRITE_S", 0.05)


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


async def test_without_faults_lines_are_written_immediately(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, queue=on_disk(tmp_path)))
    async with bench.writing():
        await bench.write(3)
        assert watts(path) == [1, 2, 3]
        assert bench.emitted == bench.value("produced_total") == 3
    assert (bench.value("queued"), bench.imbalance) == (0, 0)


async def test_d6_a_full_disk_loses_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "podgpu")
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, queue=MEMORY))
    async with bench.writing():
        await bench.write(2)
        with file_size_limit(path.stat().st_size + 100):
            for _ in range(50):
                bench.send()
            await bench.wait_for("queued", 50)
            assert bench.value("delivering") == 0
            await asyncio.sleep(0.1)
            # A partly written line is cut off immediately.
            while not (text := path.read_bytes()).endswith(b"\n"):
                await asyncio.sleep(0.001)
            assert [line["readings"]["power_watts"] for line in parsed(text)] == [1, 2]
            assert bench.imbalance == 0
        await bench.wait_for("emitted_total", 52)
        assert bench.value("delivering") == 1
    assert watts(path) == list(range(1, 53))
    assert bench.imbalance == bench.value("dropped_total") == 0
    assert caplog.text.count(f"cannot write {path}: File too large") == 1
    assert caplog.text.count("responds again") == 1
    assert bench.value("retries_total") > 1


async def test_d6_lines_that_fit_on_the_disk_are_written_once(tmp_path: Path) -> None:
    """Lines that were written before the disk was full are not repeated."""
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, queue=MEMORY))
    async with bench.writing():
        await bench.write(1)
        line = path.stat().st_size
        with file_size_limit(0):
            for _ in range(20):
                bench.send()
            await bench.wait_for("queued", 20)
        for room in (3, 3, 7, 8, 15):
            with file_size_limit(line * room + line // 2):
                await asyncio.sleep(0.06)
        await bench.wait_for("emitted_total", 21)
    assert watts(path) == list(range(1, 22))


async def test_lines_in_a_queue_on_disk_are_written_by_the_next_process(tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    path = folder / "gpu.jsonl"
    setting = options(path, queue=on_disk(tmp_path))
    bench = Bench(setting)
    async with bench.writing():
        await bench.write(2)
        path.unlink()
        folder.rmdir()
        folder.write_text("in its place")
        for _ in range(10):
            bench.send()
        await bench.wait_for("queued", 10)
    assert (bench.value("queued"), bench.imbalance) == (10, 0)
    folder.unlink()
    folder.mkdir()
    after = Bench(setting)
    async with after.writing():
        await after.wait_for("emitted_total", 10)
    assert watts(path) == list(range(3, 13))
    assert (after.value("recovered_total"), after.imbalance) == (10, 0)


async def test_lines_wait_while_the_file_cannot_be_opened_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu.jsonl"
    path.touch()
    open_target, tries = line_writer.open_target, 0

    def fail_three_times(*args: object) -> object:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return open_target(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(line_writer, "open_target", fail_three_times)
    bench = Bench(options(path, queue=MEMORY))
    async with bench.writing():
        for _ in range(5):
            bench.send()
        await bench.wait_for("emitted_total", 5)
    assert watts(path) == [1, 2, 3, 4, 5]


def drain(read_end: int, lines: int) -> bytes:
    text = b""
    while text.count(b"\n") < lines:
        text += os.read(read_end, 65536)
    return text


async def test_j3_a_stuck_reader_gets_each_line_once_when_it_reads_again(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(options(queue=MEMORY))
    async with bench.writing():
        for _ in range(200):
            bench.send()
        async with asyncio.timeout(10):
            while bench.value("retries_total") < 3 or bench.value("queued") + bench.emitted < 200:
                await asyncio.sleep(0.001)
        assert bench.value("delivering") == bench.imbalance == 0
        assert bench.value("queued") + bench.emitted == 200
        text = await asyncio.to_thread(drain, pipe[0], 200)
        await bench.wait_for("emitted_total", 200)
        assert bench.value("delivering") == 1
    assert [line["readings"]["power_watts"] for line in parsed(text)] == list(range(1, 201))
    assert caplog.text.count("standard output has accepted no data for 0.05 s") == 1
    assert bench.imbalance == bench.value("dropped_total") == 0


async def test_j3_lines_for_a_reader_that_stays_stuck_are_counted(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_writer, "_CLOSE_TIMEOUT_S", 0.05)
    bench = Bench(options(queue=MEMORY))
    async with bench.writing():
        for _ in range(200):
            bench.send()
        await bench.wait_for("produced_total", 200)
    assert bench.emitted + bench.value("dropped_total") == 200
    assert bench.imbalance == 0
    # The thread still completes its write: no line is partial.
    text = await asyncio.to_thread(drain, pipe[0], int(bench.emitted) + 1)
    parsed(text[: text.rfind(b"\n") + 1])


async def test_j3_without_a_reader_the_lines_in_memory_are_dropped(pipe: Pipe) -> None:
    bench = Bench(options(queue=MEMORY))
    async with bench.writing():
        await bench.write(1)
        os.close(pipe[0])
        bench.send()
        bench.send()
        await bench.wait_for("queued", 2)
    assert (bench.emitted, bench.value("dropped_total")) == (1, 2)
    assert bench.imbalance == 0


async def test_telemetry_lines_wait_too_and_count_as_one(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, telemetry="1ms", queue=MEMORY))
    async with bench.writing():
        bench.send()
        await bench.wait_for("emitted_total", 2)
    lines = parsed(path.read_bytes())
    assert [line["record"] for line in lines] == ["device", "telemetry"]


async def test_files_stay_within_max_size_when_many_lines_have_waited(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path, max_size="4KiB", keep=1000, queue=MEMORY))
    async with bench.writing():
        with file_size_limit(0):
            for _ in range(100):
                bench.send()
            await bench.wait_for("queued", 100)
        await bench.wait_for("emitted_total", 100)
    files = [*numbered(tmp_path), path]
    assert len(files) > 5
    assert max(file.stat().st_size for file in files) <= 4096
    assert watts(*files) == list(range(1, 101))


async def test_lines_are_flushed_with_a_queue_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu.jsonl"
    flushed: list[int] = []
    fsync = os.fsync

    def record_flush(fd: int) -> None:
        flushed.append(fd)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record_flush)
    bench = Bench(options(path, fsync="100ms", queue=MEMORY))
    async with bench.writing():
        await bench.write(1)
        async with asyncio.timeout(10):
            while not flushed:
                await asyncio.sleep(0.001)


class UnreliableTarget:
    """A target that writes a random number of lines after a random delay, then fails."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[bytes] = []
        self.reliable = threading.Event()

    def write(self, batch: Batch, now: Instant) -> WriteFault | None:
        if self.reliable.is_set():
            self.lines += batch.lines
            return None
        if self.rng.random() < 0.3:
            self.reliable.wait(self.rng.uniform(0, 0.02))
        taken = self.rng.randint(0, len(batch.lines))
        self.lines += batch.lines[:taken]
        if taken < len(batch.lines):
            cause = self.rng.choice([errno.ENOSPC, errno.EIO, errno.EROFS])
            return WriteFault(taken, OSError(cause, os.strerror(cause)))
        return None

    def sync(self, now: Instant) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(5))
async def test_each_line_is_written_once_on_an_unreliable_target(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = UnreliableTarget(seed)
    monkeypatch.setattr(line_writer, "open_target", lambda *_: target)
    monkeypatch.setattr(queued_lines, "_SLOW_WRITE_S", 0.005)
    monkeypatch.setattr(queued_lines, "_CHUNK", 2000)
    bench = Bench(options("target", queue=MEMORY))
    async with bench.writing():
        for number in range(300):
            bench.send()
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        target.reliable.set()
        await bench.wait_for("emitted_total", 300)
    values = [line["readings"]["power_watts"] for line in parsed(b"".join(target.lines))]
    assert values == list(range(1, 301))
    assert bench.imbalance == 0


def records(text: str) -> list[Record]:
    return [Record(letter.encode(), 1, 0) for letter in text]


@pytest.mark.parametrize(
    ("written", "waiting", "count"),
    [
        ("abc", "abc", 3),
        ("abc", "abcd", 3),
        ("abc", "ab", 0),  # the queue cannot be shorter than the records given back
        ("abc", "cde", 1),  # a and b were dropped during the slow write
        ("abc", "de", 0),
        ("", "ab", 0),
        ("abc", "", 0),
        ("aaa", "aaab", 3),
    ],
)
def test_the_overlap_of_a_slow_write_with_the_queue_is_found(
    written: str, waiting: str, count: int
) -> None:
    assert queued_lines._overlap_count(records(written), records(waiting)) == count


def test_two_sinks_cannot_use_the_same_queue_folder() -> None:
    text = (
        "sources: {g: {kind: nvml}}\n"
        "sinks:\n"
        "  a: {kind: jsonl, path: /tmp/a, queue: {path: /tmp/queue}}\n"
        "  b: {kind: jsonl, path: /tmp/b, queue: {path: /tmp/../tmp/queue}}\n"
        "  c: {kind: jsonl, path: /tmp/c, queue: {}}\n"
        "  d: {kind: jsonl, path: /tmp/d, queue: {max_size: 2MiB}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, RegisteredKinds(), env={}, origin="f")
    assert [problem.path for problem in caught.value.problems] == ["sinks.b"]
    assert "a already uses the folder /tmp/queue" in str(caught.value)


# Values show which process wrote them; lines are written in small pieces.
PROCESSES = """
from pipeline.delivery.options import QueueOptions

real_write = os.write
def write_in_pieces(fd, data):
    time.sleep(0.0001)
    return real_write(fd, bytes(data[:7]))

def work(process):
    async def main():
        bench = Bench(options(path, queue=QueueOptions(path=path.parent / "queue")))
        bench.number = process * 1_000_000
        async with bench.writing():
            os.write = write_in_pieces
            while True:
                bench.send()
                await asyncio.sleep(0.0005)
    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_j1_d3_after_many_kills_no_queued_line_is_lost(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    path = folder / "gpu.jsonl"

    def run_and_kill() -> None:
        with killing(path, PROCESSES) as kill:
            for process in range(1, 26):
                kill(process, random.uniform(0.1, 0.3))

    await asyncio.to_thread(run_and_kill)
    last = Bench(options(path, queue=QueueOptions(path=folder / "queue")))
    async with last.writing():
        await last.wait_for("queued", 0)
    assert last.value("recovered_total") > 0
    values = [int(value) for value in watts(path)]
    seen: dict[int, list[int]] = {}
    for value in values:
        process, number = divmod(value, 1_000_000)
        numbers = seen.setdefault(process, [])
        # A line may be repeated; but never before an older one.
        if not numbers or number > numbers[-1]:
            numbers.append(number)
    assert list(seen) == sorted(seen)
    assert len(seen) > 3
    for numbers in seen.values():
        # The last lines of a process were never queued; no other is missing.
        assert numbers == list(range(1, len(numbers) + 1))
    assert last.imbalance == 0
