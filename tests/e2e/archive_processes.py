"""Runs podgpu's commands for the archive as processes that start fast and can be killed.

They are forked from a process that has imported the libraries: `python -m
tests.e2e.archive_processes`. Everything else is as if podgpu was started: the arguments, the exit
status, and the output in a file.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PATIENCE = 60.0


class Starter:
    """The process from which commands are forked."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def ask(self, question: Any) -> Any:
        """Send a question, and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=_PATIENCE)


class Command:
    """A running command of podgpu.

    Args:
        starter: the process to fork from.
        arguments: the arguments after `podgpu`.
        env: additional variables of its environment.
        log: file to which its output is appended.
    """

    def __init__(
        self, starter: Starter, arguments: Sequence[str], env: Mapping[str, str], log: Path
    ) -> None:
        self._starter = starter
        self._log = log
        self._status: int | None = None
        self._started = time.monotonic()
        self._pid: int = starter.ask([list(arguments), dict(env), str(log)])
        self._guard = threading.RLock()
        self.seconds = 0.0
        """Its duration, after `wait`."""

    def kill(self) -> bool:
        """End it by SIGKILL; return whether it was still running."""
        with self._guard:
            if self._ended() is not None:
                return False
            os.kill(self._pid, signal.SIGKILL)
            return self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        """Wait until it has ended, and return its exit status; that of a signal is negative."""
        end = time.monotonic() + _PATIENCE
        while (status := self._ended()) is None:
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"it does not end:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.005)
        self.seconds = time.monotonic() - self._started
        return status

    def _ended(self) -> int | None:
        with self._guard:
            if self._status is None:
                self._status = self._starter.ask(self._pid)
            return self._status


def _serve() -> None:
    # Imported for the processes that are forked from this one.
    import pipeline.archive.compaction
    import pipeline.archive.object_merge
    import pipeline.archive.raw_object  # noqa: F401
    import podgpu.cli.archive.command
    import podgpu.cli.archive.compact
    import podgpu.cli.archive.node_write  # noqa: F401
    from podgpu.cli.commands import command_parser

    command_parser()
    for line in sys.stdin:
        question = json.loads(line)
        if isinstance(question, int):
            pid, status = os.waitpid(question, os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            _run(*question)


def _run(arguments: list[str], env: Mapping[str, str], log: str) -> None:
    status = 99
    with suppress(BaseException):
        os.environ.update(env)
        random.seed()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        from podgpu.cli.commands import run_command

        status = run_command(arguments)
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve()
