"""The process ends with the status of the command, regardless of what its threads do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """\
import bcrypt, sys, threading, time
from podgpu import cli

hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(10))

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1)  # the interpreter's finalization takes as long

def check_on():
    while True:
        bcrypt.checkpw(b"wrong", hashed)

def main():
    threading.Thread(target=check_on, daemon=True).start()
    cli.referenced = Slow()
    time.sleep(0.1)
    print("printed")
    {end}

cli.main = main
sys.exit(cli.program())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        ("return 0", 0, ""),
        ("return 3", 3, ""),
        ("raise ValueError('a bug')", 1, "ValueError: a bug"),
    ],
)
def test_a_thread_in_a_library_call_does_not_abort_the_process(
    end: str, status: int, error: str
) -> None:
    """Libraries in Rust abort the process when it ends one of their threads during a call."""
    program = [sys.executable, "-c", WORK.format(end=end)]
    ended = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (status, "printed\n")
    assert error in ended.stderr
    assert "FATAL" not in ended.stderr


@pytest.mark.slow
def test_output_that_cannot_be_written_is_an_error() -> None:
    program = [sys.executable, "-c", WORK.format(end="return 0")]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(program, check=False, stdout=full, env=buffered, timeout=60)
    assert ended.returncode == 120


@pytest.mark.slow
def test_closed_output_streams_are_not_an_error() -> None:
    program = [sys.executable, "-c", WORK.format(end="return 0")]
    closed = ["bash", "-c", 'exec "$@" >&- 2>&-', "bash", *program]
    assert subprocess.run(closed, check=False, timeout=60).returncode == 0
