"""The process of `podgpu archive` that stays: starts a child process for each write.

It imports the standard library and little else, because it runs on each node all the time.
`podgpu archive` becomes this program, so that the memory for its options is free:

    python -m podgpu.cli.archive.resident INTERVAL GRACE COMMAND...
"""

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from pipeline.base.backoff import Backoff
from podgpu.cli.terminal_text import complain

_FIRST_SECONDS: Final = 60.0
"""Longest time from the start to the first write. It is random: nodes often start together."""

_SPREAD: Final = 0.25
"""Largest random change of the time between two writes, as a part of it."""

_DEADLINE: Final = 900.0
"""Seconds after which a write is ended. The first write of a ledger of a year takes a minute."""

_RETRY_SECONDS: Final = 60.0
_KILL_SECONDS: Final = 5.0


class Resident:
    """Starts a child process for each write, until SIGTERM or SIGINT.

    Args:
        command: the command of the child process. It may be killed at any time.
        env: its environment.
        interval: mean seconds between two writes.
        grace: seconds for the last write after a signal.
        deadline: seconds after which a write is ended.
        rng: source of the random parts of times; tests pass a seeded one.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: dict[str, str],
        *,
        interval: float,
        grace: float,
        deadline: float = _DEADLINE,
        rng: random.Random | None = None,
    ) -> None:
        self._command = list(command)
        self._env = env
        self._interval = interval
        self._grace = grace
        self._deadline = deadline
        self._rng = rng or random.Random()  # noqa: S311 - only spreads the load
        self._signals = _Signals()

    def run(self) -> int:
        """Write at each interval; return 0 after a signal, and a last write."""
        with self._signals.handled():
            backoff = None
            self._wait(self._rng.uniform(0, min(_FIRST_SECONDS, self._interval)))
            while not self._signals.stop:
                if self._write(self._deadline):
                    backoff = None
                    factor = self._rng.uniform(1 - _SPREAD, 1 + _SPREAD)
                    delay = self._interval * factor
                else:
                    backoff = backoff or Backoff(_RETRY_SECONDS, self._interval, rng=self._rng)
                    delay = min(backoff.delay(0), self._interval)
                    if not self._signals.stop:
                        complain(
                            "podgpu archive: the write failed. No data is lost: the ledger keeps "
                            f"it; the next try is in {delay:.0f} s"
                        )
                if self._signals.stop:
                    return 0  # the write that just ended was the last one
                self._wait(delay)
            complain("podgpu archive: stopping; writes once more what is closed")
            self._write(self._grace)
        return 0

    def _wait(self, seconds: float) -> None:
        """Wait until a time has passed, or a signal to stop has come."""
        until = self._now() + seconds
        while not self._signals.stop and (remaining := until - self._now()) > 0:
            self._signals.wait(remaining)

    def _write(self, seconds: float) -> bool:
        """Run a child process; return whether it succeeded.

        Args:
            seconds: time after which it is killed. After a signal, it is killed after the grace.
        """
        # Before the child starts: a signal may come before `Popen` returns.
        is_last = self._signals.stop
        try:
            # Not in the foreground process group: Ctrl-C is for this process only.
            child = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.DEVNULL, process_group=0
            )
        except OSError as error:
            complain(f"podgpu archive: cannot start {self._command[0]}: {error.strerror}")
            return False
        until = self._now() + seconds
        while child.poll() is None:
            if self._signals.stop and not is_last:
                until, is_last = min(until, self._now() + self._grace), True
            remaining = until - self._now()
            if remaining <= 0:
                self._kill(child, seconds)
                return False
            self._signals.wait(remaining)
        return child.returncode == 0

    def _kill(self, child: "subprocess.Popen[bytes]", seconds: float) -> None:
        limit = min(seconds, self._grace) if self._signals.stop else seconds
        complain(
            f"podgpu archive: a write took longer than {limit:g} s, and was ended. No data is "
            "lost: what is not in the archive stays in the ledger. Check the archive and the "
            "network"
        )
        child.kill()
        try:
            child.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            complain(f"podgpu archive: process {child.pid} does not end: check the ledger's disk")

    @staticmethod
    def _now() -> float:
        return time.monotonic()  # noqa: TID251 - the module of the clock needs 8 MB


class _Signals:
    """Waits for signals: those that stop the program, and the end of a child process.

    Attributes:
        stop: whether SIGTERM or SIGINT has come.
    """

    def __init__(self) -> None:
        self.stop = False
        self._reader = -1

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals in the context. Restores the earlier handlers."""
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Python writes the number of each signal into the pipe.
        woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        handlers = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        }
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
            os.close(self._reader)
            os.close(writer)

    def wait(self, seconds: float) -> None:
        """Wait for a signal, at most some seconds."""
        if select.select([self._reader], [], [], seconds)[0]:
            os.read(self._reader, 512)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.stop = True


def main(words: Sequence[str]) -> int:
    """Run with the arguments in the module's docstring; times are in seconds."""
    interval, grace, *command = words
    resident = Resident(command, dict(os.environ), interval=float(interval), grace=float(grace))
    return resident.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
