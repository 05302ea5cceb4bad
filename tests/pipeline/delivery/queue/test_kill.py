"""D3: tests of a process that is killed between any two system calls or at random times."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.folder_reader import read_folder
from tests.pipeline.delivery.queue.support import (
    Bench,
    checked,
    fill,
    kill,
    numbers,
    points,
    record,
    segments,
)

KILLS = int(os.environ.get("PODGPU_QUEUE_KILLS", "40"))
ROOT = Path(__file__).parents[4]

# Imports the modules once, and then forks a process for each line of its input.
PROGRAM = """
import os, random, sys
from pathlib import Path
from tests.pipeline.delivery.queue.support import Bench, points, record

def work(number, seed):
    bench, chance = Bench("safe", Path(sys.argv[1]), fsync=0.02), random.Random(seed)
    queue = bench.open()
    settled = 0
    os.write(1, b"opened\\n")
    while True:
        if chance.random() < 0.6:
            queue.append([record(number, chance.choice([20, 3000, 20_000]))])
            os.write(1, b"appended %d\\n" % number)
            number += 1
        else:
            taken = queue.take(chance.choice([1, 30_000, 100_000]))
            count = chance.randint(0, len(taken))
            os.write(1, b"settling %d\\n" % count)
            queue.settle(count, acked=points(taken[:count]))
            os.write(1, b"settled %d\\n" % count)
            queue.release()
        queue.maintain(bench.clock.pass_(0.01))

for line in sys.stdin:
    child = os.fork()
    if not child:
        work(*map(int, line.split()))
    os.write(1, b"%d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


@contextmanager
def forks(path: Path) -> Iterator[Callable[[int, int], list[str]]]:
    """Yield a function that runs a process, kills it, and returns the lines that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    with process:
        try:
            yield lambda number, seed: _run_and_kill(stdin, stdout, number, seed)
        finally:
            process.kill()


def _run_and_kill(stdin: IO[str], stdout: IO[str], number: int, seed: int) -> list[str]:
    stdin.write(f"{number} {seed}\n")
    stdin.flush()
    output: list[str] = []
    child = 0
    chance = random.Random(seed)
    least = chance.randint(1, 30)
    while not child or len(output) < least:
        line = stdout.readline().strip()
        if line.isdecimal():
            child = int(line)
        else:
            output.append(line)
    time.sleep(chance.uniform(0, 0.003))
    os.kill(child, signal.SIGKILL)
    while (line := stdout.readline().strip()) != "ended":
        assert line
        output.append(line)
    return output


@pytest.mark.slow
@pytest.mark.timeout(60 + KILLS)
def test_d3_a_kill_at_a_random_time_loses_nothing_and_resends_little(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue"
    appended = settled = 0
    with forks(path) as run:
        for seed in range(KILLS):
            output = [line.split() for line in run(appended, seed) if line != "opened"]
            known = appended + sum(what == "appended" for what, _ in output)
            done = settled + sum(int(count) for what, count in output if what == "settled")
            open_count = int(output[-1][1]) if output and output[-1][0] == "settling" else 0

            found = read_folder(path)
            queue = Bench("safe", path).open()
            state = checked(queue)
            waiting = numbers(queue.take(1 << 30))
            kill(queue)

            first = waiting[0] if waiting else record_after(state.totals.appended)
            end = first + len(waiting)
            assert waiting == list(range(first, end))
            assert end in (known, known + 1)
            assert first in (done, done + open_count)
            assert state.totals.appended == points(map(record, range(end)))
            assert state.totals.acked == points(map(record, range(first)))
            assert not state.totals.dropped
            assert not state.faults
            assert found.totals == state.totals
            assert [number for number, _ in found.waiting] == waiting
            appended, settled = end, first
    assert settled > KILLS


def record_after(total: int) -> int:
    """Return the number of the first record after this number of points."""
    number = 0
    while total > 0:
        total -= record(number).points
        number += 1
    return number


def test_d3_records_in_flight_over_the_size_limit_are_lost_by_a_kill(
    tmp_path: Path,
) -> None:
    bench = Bench("disk", tmp_path / "queue")
    queue = bench.open()
    put = fill(queue, 5, size=100_000)
    taken = queue.take(200_000)
    put += fill(queue, 15, size=100_000, start=5)
    totals = checked(queue).totals
    kill(queue)
    queue = bench.open()
    again = checked(queue).totals
    assert again.appended == totals.appended == points(put)
    lost = totals.dropped["queue_over_size"] + points(taken)
    assert again.dropped == {"queue_over_size": lost}
    assert again.queued == totals.queued - points(taken)


class Killed(BaseException):
    pass


def close_files(folder: Path) -> None:
    """Close all files in a folder, as the kernel does for a killed process."""
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - faster
        try:
            path = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - faster
        except FileNotFoundError:
            continue
        if path == str(folder) or path.startswith(f"{folder}/"):
            os.close(int(number))


CALLS = ("open", "pwrite", "pwritev", "ftruncate", "fsync", "rename", "unlink", "mkdir")


class KillAfter:
    """Raises `Killed` after a number of system calls. If the next one writes, half is written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        # A kill loses nothing that was written, so nothing has to be flushed.
        patch.setattr(os, "fsync", os.fstat)
        for name in CALLS:
            patch.setattr(os, name, self._counting(getattr(os, name), name))

    def _counting(self, call: Callable[..., object], name: str) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            if self.left == 0:
                if name == "pwritev":
                    fd, pieces, place = args
                    data = b"".join(pieces)  # type: ignore[arg-type]
                    call(fd, [data[: len(data) // 2]], place)
                raise Killed
            self.left -= 1
            return call(*args, **kwargs)

        return counted


def some_work(queue: MemoryQueue, acked: list[int], appended: list[int]) -> None:
    """Append and settle records, so that segments are added and removed."""
    for number in range(12):
        appended.append(number)
        queue.append([record(number, 30_000)])
        if number % 3 == 2:
            taken = queue.take(80_000)
            acked += numbers(taken[:2])
            queue.settle(2, acked=points(taken[:2]))
            queue.release()
        queue.maintain(number * 10**9)
    fill(queue, 1, start=99)
    appended.append(99)
    queue.close()


@pytest.mark.slow
@pytest.mark.parametrize("fsync", [0, 1])
def test_d3_a_queue_killed_between_any_two_calls_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: int
) -> None:
    killing = KillAfter(monkeypatch)
    kills = 0
    for calls in range(1000):
        bench = Bench("disk", tmp_path / str(calls), fsync=fsync)
        acked: list[int] = []
        appended: list[int] = []
        killing.left = calls
        queue = None
        try:
            queue = bench.open()
            some_work(queue, acked, appended)
        except Killed:
            kills += 1
        else:
            break
        finally:
            killing.left = -1
        close_files(bench.path)
        queue = bench.open()
        state = checked(queue)
        waiting = numbers(queue.take(1 << 30))
        # It is unknown whether the last append and the last settle took effect.
        assert waiting in (
            [n for n in appended if n not in acked],
            [n for n in appended[:-1] if n not in acked],
            [n for n in appended if n not in acked[:-2]],
        ), calls
        assert not state.totals.dropped
        assert state.totals.acked + state.totals.queued == state.totals.appended
        assert state.totals.queued == points(map(record, waiting))
        queue.close()
    assert kills > 60


@pytest.mark.parametrize("fsync", [0, 1])
def test_d3_a_queue_killed_while_it_is_opened_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: int
) -> None:
    bench = Bench("disk", tmp_path / "queue", fsync=fsync)
    queue = bench.open()
    put = fill(queue, 8, size=30_000)
    queue.settle(1, acked=points(queue.take(1)))
    kill(queue)
    last = segments(bench.path)[-1]
    last.write_bytes(last.read_bytes()[:-7])
    (bench.path / f"{77:020}.seg").write_bytes(b"rubbish")
    killing = KillAfter(monkeypatch)
    for calls in range(1000):
        killing.left = calls
        try:
            queue = bench.open()
        except Killed:
            close_files(bench.path)
        else:
            break
        finally:
            killing.left = -1
    assert calls > 8
    checked(queue)
    assert queue.take(1 << 30) == tuple(put[1:-1])
