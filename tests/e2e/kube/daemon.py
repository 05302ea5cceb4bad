"""One of the node's programs: started, awaited, stopped, and started again as it was."""

import os
import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.e2e import marks
from tests.e2e.kube import folders
from tests.e2e.processes import Process, wait_until

_DETACHED = ("setsid", "setpriv", "--pdeathsig", "KILL")
"""Ctrl-C is not for them: they end in order. But no test run that was killed leaves them behind."""


class Daemon(ABC):
    """A program of the node. What it says goes into one log, over all its starts."""

    name: str
    env: dict[str, str]

    def __init__(self) -> None:
        self.env = {}
        self.outages = 0
        """How often it was stopped or frozen."""
        self._process: Process | None = None

    # What each program defines.

    @abstractmethod
    def command(self) -> list[str | Path]:
        """Write what the program reads and return how it is called."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether it does its work; asked again and again after a start."""

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
        assert not self.running, f"{self.name} runs already"
        self._process = Process(
            [*_DETACHED, *self.command()], self.log, {**self.env, marks.NODE: "yes"}
        )

    def wait_ready(self) -> None:
        wait_until(self._alive_and_ready, f"{self.name} is ready", seconds=60)

    def _alive_and_ready(self) -> bool:
        assert self.running, f"{self.name} ended:\n{self.output()[-3000:]}"
        return self.ready()

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """End it, however it takes the signal; nothing happens if it doesn't run."""
        self.thaw()
        self.outages += self.running
        return self._process.stop(signum) if self._process is not None else 0

    def restart(self, down: float = 0.0) -> None:
        """Stop it, leave it down for so many seconds, start it as it was."""
        self.stop()
        time.sleep(down)
        self.start()

    def freeze(self) -> None:
        """Let it stop answering without letting go of its sockets."""
        self.outages += 1
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGCONT)

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
