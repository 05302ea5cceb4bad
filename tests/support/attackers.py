"""Hostile clients with many loopback addresses, in a separate process.

`python -m tests.support.attackers KIND --port PORT` attacks until it is terminated.
"""

import argparse
import asyncio
import base64
import contextlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path

Attack = Callable[["Socket", str], Awaitable[None]]

_LINE = b"X%d: " + b"h" * 4000 + b"\r\n"


class Socket:
    """One connection, which reads only on request.

    Args:
        source: the address of the client.
        port: the port of the server.
    """

    def __init__(self, source: str, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)
        self._socket.bind((source, 0))

    async def connect(self) -> None:
        await self._loop.sock_connect(self._socket, ("127.0.0.1", self._port))

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def read(self) -> bytes:
        return await self._loop.sock_recv(self._socket, 1 << 16)

    async def until_ended(self) -> None:
        """Read nothing until the connection is reset, which a write detects."""
        while True:
            await asyncio.sleep(1)
            await self.send(b"\r\n")

    def close(self) -> None:
        self._socket.close()


def get(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def post(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


# The attacks. Each gets a connection and the path to request.


async def unread(connection: Socket, path: str) -> None:
    """Send requests continuously on one connection, and read nothing."""
    while True:
        await connection.send(get(path) * 50)


async def pipelined(connection: Socket, path: str) -> None:
    """Send twenty requests at a time, and read nothing; reconnect every two seconds."""
    await connection.send(get(path) * 20)
    await asyncio.sleep(2)


async def halves(connection: Socket, _: str) -> None:
    """Send as many header lines as the server accepts, and never the end of the request."""
    await connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
    for at in range(60):
        await connection.send(_LINE % at)
    while True:
        await asyncio.sleep(0.5)
        await connection.send(b"X")


async def idle(connection: Socket, _: str) -> None:
    """Send nothing."""
    await connection.read()


async def guesses(connection: Socket, path: str) -> None:
    """Try random passwords, one after the other."""
    while True:
        token = base64.b64encode(b"prometheus:%d" % random.getrandbits(60)).decode()
        await connection.send(get(path, f"Authorization: Basic {token}"))
        if not await connection.read():
            return


async def trickle(connection: Socket, path: str) -> None:
    """Announce a large body, send much of it, then one byte at a time."""
    await connection.send(post(path, 8 << 20))
    await connection.send(b"{" * (1 << 20))
    while True:
        await asyncio.sleep(0.2)
        await connection.send(b"{")


async def questions(connection: Socket, path: str) -> None:
    """Send an extender requests that take long to parse."""
    node = b'{"metadata":{"name":"node-%d","labels":{%s}}}'
    labels = b",".join(b'"l%d":"%s"' % (at, b"v" * 40) for at in range(20))
    items = b",".join(node % (at, labels) for at in range(200))
    body = b'{"pod":{"metadata":{"name":"p"},"spec":{"containers":[]}},"nodes":{"items":[%s]}}'
    body %= items
    while True:
        await connection.send(post(path, len(body)) + body)
        if not await connection.read():
            return


async def churn(_: Socket, __: str) -> None:
    """Connect, and disconnect immediately."""


KINDS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (unread, pipelined, halves, idle, guesses, trickle, questions, churn)
}


async def attack(
    kind: str, port: int, path: str, *, connections: int, sources: int, first: int = 1
) -> None:
    """Attack until cancelled; a client whose connection ends reconnects."""

    async def one(at: int) -> None:
        host = first + at % sources
        for _ in count():
            connection = Socket(f"127.1.{host // 250}.{host % 250 + 1}", port)
            try:
                await connection.connect()
                await KINDS[kind](connection, path)
            except OSError:
                await asyncio.sleep(0.05)
            finally:
                connection.close()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for at in range(connections):
            group.create_task(one(at))


@contextlib.contextmanager
def under_attack(
    kind: str, port: int, path: str = "/metrics", *, connections: int, sources: int
) -> Iterator[None]:
    """Run an attack in another process during the `with` block."""
    arguments = ["--port", str(port), "--path", path]
    arguments += ["--connections", str(connections), "--sources", str(sources)]
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, kind, *arguments])
    try:
        yield
        assert process.poll() is None, f"{kind} has ended"
    finally:
        process.kill()
        process.wait()


class Times:
    """Response times in seconds, and the failed requests."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.failed: list[str] = []

    def __str__(self) -> str:
        ordered = sorted(self.took) or [float("nan")]
        middle, most = ordered[len(ordered) // 2], ordered[-1]
        text = f"{len(self.took)} answers, median {middle * 1e3:.0f} ms, most {most * 1e3:.0f} ms"
        return f"{text}, {len(self.failed)} failed {sorted(set(self.failed))[:3]}"

    def ask(
        self,
        port: int,
        path: str,
        *,
        source: str = "127.0.0.1",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        seconds: float = 10,
    ) -> bytes:
        """Send one request over a new connection; return the body of the response."""
        start = time.perf_counter()
        connection = HTTPConnection("127.0.0.1", port, timeout=seconds, source_address=(source, 0))
        try:
            connection.request("GET" if body is None else "POST", path, body, headers or {})
            answer = connection.getresponse()
            found = answer.read()
        except (OSError, HTTPException) as error:
            self.failed.append(type(error).__name__)
            return b""
        finally:
            connection.close()
        if answer.status != 200:
            self.failed.append(str(answer.status))
            return b""
        self.took.append(time.perf_counter() - start)
        return found


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/metrics")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--sources", type=int, default=200)
    found = parser.parse_args(arguments)
    options = {"connections": found.connections, "sources": found.sources}
    asyncio.run(attack(found.kind, found.port, found.path, **options))


if __name__ == "__main__":
    main()
