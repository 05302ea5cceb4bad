"""Programs that run beside the test, and how to wait for what they do."""

import http.client
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.e2e import marks

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for what is expected within few: a busy machine must not fail a test."""


def wait_until(
    condition: Callable[[], T | None], what: str, seconds: float = PATIENCE, every: float = 0.05
) -> T:
    """Return the condition's first true value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(every)
    return found


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on.

    Below those that the kernel hands out for outgoing connections: a port has to stay free while
    the program that listens on it is being restarted.
    """
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 4_000):
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


def get(
    port: int, path: str, headers: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> Answer:
    """Ask a server, on loopback or in a pod.

    Raises:
        OSError: it isn't there.
    """
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, names, answer.read())
    except http.client.HTTPException as error:
        raise OSError(f"port {port}: {error!r}") from error
    finally:
        connection.close()


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for a signal by now, or has ended."""
    try:
        output = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = next((line for line in output.splitlines() if line.startswith("SigCgt")), "SigCgt: -1")
    return bool(int(caught[8:], 16) >> (signum - 1) & 1)


class Process:
    """One run of a program; what it says goes into a file."""

    def __init__(
        self, command: Iterable[str | Path], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                list(map(str, command)),
                env={**os.environ, marks.RUN: marks.own(), **(env or {})},
                cwd=log.parent,
                stdout=out,
                stderr=out,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def answers(self, port: int, path: str) -> Answer | None:
        """Ask it; None while it does not listen, or has another answer than 200.

        Who listens isn't ready yet: it may say so by 503, or know nothing of the path.
        """
        assert self.running, f"it ended:\n{self.output()[-3000:]}"
        try:
            answer = get(port, path)
        except OSError:
            return None
        return answer if answer.status == 200 else None

    def wait_for_answer(self, port: int, path: str) -> Answer:
        """Wait until it answers with 200."""
        return wait_until(lambda: self.answers(port, path), f"{path} on port {port}")

    def catches(self, signum: int) -> bool:
        """Whether it has a handler for a signal by now, or has ended."""
        return catches(self.pid, signum)

    def send(self, signum: int) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(signum)

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """End it and return its status; killed if it does not heed the signal."""
        self.send(signum)
        return self.wait()

    def wait(self) -> int:
        """Return its status once it has ended; killed if it does not end."""
        try:
            return self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(20)
