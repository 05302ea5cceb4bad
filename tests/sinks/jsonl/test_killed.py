"""podgpu is killed at random times, as a real process, many times."""

import gzip
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sinks.jsonl.options import Options
from sinks.jsonl.rotated_files import Rotated
from sinks.jsonl.rotating_file import RotatingFile
from sinks.jsonl.target import FailureLog
from tests.sinks.jsonl.support import parsed
from tests.support.nodes import START

KILLS = 20

# Imports once, and then forks a process for each number that it reads from standard input.
FORKS = """
import asyncio, os, sys, time
from pathlib import Path
from config.value_types import ByteSize
from pipeline.model import Instant
from sinks.jsonl.rotating_file import RotatingFile
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.options import Options
from sinks.jsonl.target import FailureLog
from tests.sinks.jsonl.support import Bench, options

path = Path(sys.argv[1])

{work}

for number in sys.stdin:
    child = os.fork()
    if not child:
        work(int(number))
        os._exit(1)
    os.write(1, b"%d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"gone\\n")
"""

LINES = """
real_write = os.write
def write_in_pieces(fd, data):
    time.sleep(0.0001)
    return real_write(fd, bytes(data[:7]))

def work(first):
    async def main():
        bench = Bench(options(path))
        async with bench.writing():
            os.write = write_in_pieces
            await bench.write(1_000_000)
    asyncio.run(main())
"""

# Texts that gzip cannot shrink much, so that compression takes long.
GZIP = """
def work(first):
    setting = Options(path=str(path), max_size=ByteSize.parse("600KiB"), keep=1000, compress="gzip")
    now = Instant(0, 0)
    target = RotatingFile(path, setting, now, FailureLog())
    for number in range(first, 1_000_000):
        line = b'{"record":"n","n":%d,"x":"%s"}\\n' % (number, os.urandom(15_000).hex().encode())
        target.write(Batch([line], [1]), now)
        time.sleep(0.001)
"""

Kill = Callable[[int, float], None]


@contextmanager
def killing(path: Path, work: str) -> Iterator[Kill]:
    """Yield a function that starts a process, kills it after some seconds and waits for its end."""
    program = textwrap.dedent(FORKS).format(work=work)
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None

        def kill(number: int, seconds: float) -> None:
            assert forks.stdin is not None
            assert forks.stdout is not None
            forks.stdin.write(b"%d\n" % number)
            forks.stdin.flush()
            child = int(forks.stdout.readline())
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
            assert forks.stdout.readline() == b"gone\n"

        yield kill
        forks.stdin.close()


@pytest.mark.slow
def test_j1_after_a_kill_in_the_middle_of_a_line_all_lines_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    torn, complete = 0, b""
    with killing(path, LINES) as kill:
        for _ in range(KILLS):
            kill(0, random.uniform(0.02, 0.12))
            content = path.read_bytes() if path.exists() else b""
            # Complete lines have stayed, and what followed started on a new line.
            assert content.startswith(complete)
            torn += not content.endswith(b"\n")
            complete = content[: content.rfind(b"\n") + 1]
            parsed(complete)
    assert torn > KILLS // 4
    assert len(parsed(complete)) > KILLS // 4


def numbered(folder: Path) -> list[Path]:
    """Return the rotated files, the oldest first."""
    found = [(re.search(r"\.(\d+)(\.gz)?$", file.name), file) for file in folder.iterdir()]
    return [file for _, file in sorted((-int(name[1]), file) for name, file in found if name)]


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_after_kills_during_compression_no_line_is_lost_or_repeated(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    seen = partial = kills = 0
    known: dict[tuple[int, int, int], list[int]] = {}

    def content_of(file: Path) -> list[int]:
        """Return the numbers in a file; all its lines must be valid."""
        found = file.stat()
        # Inodes are reused, and full files have similar sizes.
        key = found.st_ino, found.st_size, found.st_mtime_ns
        if key not in known:
            data = file.read_bytes()
            text = gzip.decompress(data) if file.suffix == ".gz" else data
            known[key] = [line["n"] for line in parsed(text)]
        return known[key]

    with killing(path, GZIP) as kill:
        # On a busy machine, more kills happen before there is a file to compress.
        while kills < KILLS or (partial < 2 and kills < 10 * KILLS):
            kills += 1
            kill(seen, random.uniform(0.01, 0.12))
            partial += any(file.name.startswith(".") for file in tmp_path.iterdir())
            by_file: dict[str, list[int]] = {}
            for file in numbered(tmp_path):
                name, numbers = file.name.removesuffix(".gz"), content_of(file)
                assert by_file.setdefault(name, numbers) == numbers
            last = path.read_bytes() if path.exists() else b""
            current = [line["n"] for line in parsed(last[: last.rfind(b"\n") + 1])]
            count = sum(map(len, by_file.values())) + len(current)
            assert [n for part in (*by_file.values(), current) for n in part] == list(range(count))
            assert count >= seen
            seen = count
    assert partial > 1
    # The next start removes temporary files, and compresses the rotated files.
    setting = Options(path=str(path), keep=1000, compress="gzip")
    target = RotatingFile(path, setting, START, FailureLog())
    rotated = Rotated(path, 1000)
    while list(rotated.plain()):
        time.sleep(0.01)
    target.close()
    # A kill between two renames leaves a number unused, and nothing else.
    names = [file.name for file in tmp_path.iterdir()]
    assert [n for n in names if not re.fullmatch(r"gpu\.jsonl(\.[0-9]+\.gz)?", n)] == []
    assert len(names) > 2
