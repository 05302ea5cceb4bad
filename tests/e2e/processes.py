"""Start programs, send requests to them, and wait for conditions."""

import functools
import http.client
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.e2e import marks

T = TypeVar("T")

PATIENCE = 30.0
"""Default timeout in seconds, long enough for a busy machine."""


def wait_until(
    condition: Callable[[], T | None], what: str, seconds: float = PATIENCE, every: float = 0.05
) -> T:
    """Wait until a condition returns a true value, and return the value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(every)
    return found


@functools.cache
def _own_ports() -> tuple[Iterator[int], socket.socket]:
    """Return ports that no other process of tests is given, and the socket that claims them."""
    for first in range(20_000, 32_000, 400):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0podgpu-tests-ports-{first}")
        except OSError:
            claim.close()
            continue
        return itertools.cycle(range(first, first + 400)), claim
    raise RuntimeError("no free ports")


def free_ports(count: int) -> list[int]:
    """Return ports on which no program listens, and which no other test is given.

    They are below the range of outgoing connections, so that a port stays free while the program
    that listens on it restarts.
    """
    found: list[int] = []
    for port in itertools.islice(_own_ports()[0], 400):
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
    """Send a GET request to a server on loopback or in a pod.

    Raises:
        OSError: the server is unreachable.
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
    """Return whether a process has a handler for a signal, or has ended."""
    try:
        output = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = next((line for line in output.splitlines() if line.startswith("SigCgt")), "SigCgt: -1")
    return bool(int(caught[8:], 16) >> (signum - 1) & 1)


class Process:
    """One run of a program, with its output in a file."""

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
        """Send a GET request; None while it does not listen or its status is not 200.

        A program that listens may not be ready: it may respond with 503 or 404.
        """
        assert self.running, f"it ended:\n{self.output()[-3000:]}"
        try:
            answer = get(port, path)
        except OSError:
            return None
        return answer if answer.status == 200 else None

    def wait_for_answer(self, port: int, path: str) -> Answer:
        """Wait until it responds with 200."""
        return wait_until(lambda: self.answers(port, path), f"{path} on port {port}")

    def catches(self, signum: int) -> bool:
        """Return whether it has a handler for a signal, or has ended."""
        return catches(self.pid, signum)

    def send(self, signum: int) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(signum)

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Stop it by a signal and return its status; kill it if it does not stop."""
        self.send(signum)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended and return its status; kill it if it does not end."""
        try:
            return self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(20)
