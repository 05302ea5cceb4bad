"""Base class of the cluster's programs."""

import os
import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.e2e import marks
from tests.e2e.kube import folders
from tests.e2e.processes import Process, wait_until

_DETACHED = ("setsid", "setpriv", "--pdeathsig", "KILL")
"""Ctrl-C does not reach these programs, so that they stop in order. They are killed if the test run
is killed."""


class Daemon(ABC):
    """A program of the cluster. Its output of all starts is in one log file."""

    name: str
    env: dict[str, str]

    def __init__(self) -> None:
        self.env = {}
        self.outages = 0
        """How often it was stopped or paused."""
        self._process: Process | None = None

    # For subclasses.

    @abstractmethod
    def command(self) -> list[str | Path]:
        """Write the configuration and return the command line."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether the program is ready; called repeatedly after a start."""

    @property
    def log(self) -> Path:
        return folders.LOGS / f"{self.name}.log"

    @property
    def process(self) -> Process:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        assert not self.running, f"{self.name} is already running"
        self._process = Process(
            [*_DETACHED, *self.command()], self.log, {**self.env, marks.NODE: "yes"}
        )

    def wait_ready(self) -> None:
        wait_until(self._alive_and_ready, f"{self.name} is ready", seconds=60)

    def _alive_and_ready(self) -> bool:
        assert self.running, f"{self.name} ended:\n{self.output()[-3000:]}"
        return self.ready()

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Stop it and return its status; 0 if it does not run."""
        self.thaw()
        self.outages += self.running
        return self._process.stop(signum) if self._process is not None else 0

    def restart(self, down: float = 0.0) -> None:
        """Stop it, wait this many seconds, and start it."""
        self.stop()
        time.sleep(down)
        self.start()

    def freeze(self) -> None:
        """Pause it: it does not respond, but its sockets stay open."""
        self.outages += 1
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGCONT)

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
