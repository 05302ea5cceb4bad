"""Tests of attacks by clients: their cost is bounded, and other clients get responses."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.http.acceptor import Acceptor
from pipeline.http.client_shares import ClientConnection, ClientShares
from pipeline.http.limits import Limits
from pipeline.http.listener_registry import ListenerRegistry
from tests.support.attackers import Socket, get
from tests.support.http import LOCAL, Client, Clients, listeners, says

PAGE = b"x" * 300_000


class Attackers:
    """Raw connections that are closed at the end of the test."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open: list[Socket] = []

    async def connect(self, number: int, *, sources: int) -> list[Socket]:
        sockets = [Socket(f"127.1.0.{at % sources + 1}", self.port) for at in range(number)]
        self.open += sockets
        await asyncio.gather(*(one.connect() for one in sockets))
        return sockets

    async def send(self, data: bytes, *, to: list[Socket]) -> None:
        """Send as many bytes as the server accepts within half a second."""
        sending = [asyncio.create_task(one.send(data)) for one in to]
        await asyncio.wait(sending, timeout=0.5)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


@asynccontextmanager
async def attacked(shared: ListenerRegistry) -> AsyncIterator[tuple[Attackers, Clients, list[str]]]:
    """Serve a page; also yield the source of each request whose handler was started."""
    started: list[str] = []

    async def page(request: HttpRequest) -> HttpResponse:
        started.append(request.source)
        return HttpResponse(PAGE)

    async with shared.listen(LOCAL) as mounts, Clients() as clients:
        mounts.mount("/page", page, title="P")
        mounts.mount("/small", says("small"), title="S")
        attackers = Attackers(mounts.port)
        try:
            yield attackers, clients, started
        finally:
            for one in attackers.open:
                one.close()


def written(shared: ListenerRegistry) -> int:
    """Return the number of bytes that wait to be sent on all connections."""
    servers = [listener._server for listener in shared._listeners.values()]
    handlers = [handler for server in servers for handler in server.connections]
    return sum(one.transport.get_write_buffer_size() for one in handlers if one.transport)


async def answered(clients: Clients, port: int, path: str = "/page") -> None:
    async with asyncio.timeout(2):
        client: Client = await clients.connect(port)
        assert (await client.get(path))[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/page", "/small", "/", "/healthz", "/nothing"])
@pytest.mark.parametrize(("number", "sources"), [(1, 1), (50, 1), (50, 50)])
async def test_r1_a_client_that_does_not_read_gets_no_further_response(
    path: str, number: int, sources: int
) -> None:
    shared = listeners()
    async with attacked(shared) as (attackers, clients, started):
        hostile = await attackers.connect(number, sources=sources)
        await attackers.send(get(path) * 500, to=hostile)
        assert written(shared) <= number * 2 * shared.limits.write_bytes
        assert shared.accounting.held <= shared.limits.bytes + len(PAGE)
        if path == "/page":
            assert len(started) <= number, "a page is larger than the buffers of the kernel"
        await answered(clients, attackers.port)


@pytest.mark.parametrize("sources", [1, 50])
async def test_r2_the_memory_of_incomplete_requests_is_bounded(sources: int) -> None:
    shared = listeners(connections=50)
    async with attacked(shared) as (attackers, clients, _):
        hostile = await attackers.connect(100, sources=sources)
        head = b"GET / HTTP/1.1\r\n" + b"".join(
            b"X%d: %b\r\n" % (at, b"h" * 900) for at in range(60)
        )
        await attackers.send(head[:10_000], to=hostile)
        assert len(shared.accounting) <= 50 + shared.limits.reserve
        assert shared.accounting.held <= len(shared.accounting) * 2 * shared.limits.head_bytes
        await attackers.send(head[10_000:], to=hostile)
        async with asyncio.timeout(5):  # all requests are too long
            while shared.accounting.held:
                await asyncio.sleep(0.01)
        await answered(clients, attackers.port)


async def test_r2_a_request_that_is_too_long_gets_status_431() -> None:
    async with attacked(listeners()) as (attackers, clients, _):
        client = await clients.connect(attackers.port)
        client.send(
            b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: %b\r\n" % (at, b"h" * 900) for at in range(30))
        )
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (431, "close")
        assert await client.ended()


@pytest.mark.slow
@pytest.mark.parametrize("sources", [1, 100])
async def test_r9_each_turn_of_the_event_loop_starts_few_responses(sources: int) -> None:
    """R9: so the loop has time for samples while many clients send requests."""
    rounds, shared = 0, listeners()
    async with attacked(shared) as (attackers, clients, started):
        hostile = await attackers.connect(100, sources=sources)
        await asyncio.sleep(0.2)
        sending_requests = asyncio.create_task(attackers.send(get("/page") * 20, to=hostile))
        at_most = 0
        while not sending_requests.done():
            before = len(started)
            await asyncio.sleep(0)
            rounds += 1
            at_most = max(at_most, len(started) - before)
        assert 0 < at_most <= 4
        await answered(clients, attackers.port)


@pytest.mark.slow
@pytest.mark.parametrize("sources", [1, 100])
async def test_too_many_connections_of_an_attacker_do_not_exclude_other_sources(
    sources: int,
) -> None:
    shared = listeners(connections=40)
    async with attacked(shared) as (attackers, clients, _):
        for _ in range(3):
            hostile = await attackers.connect(100, sources=sources)
            await attackers.send(get("/page"), to=hostile)
            for path in ("/page", "/healthz"):
                await answered(clients, attackers.port, path)
        assert len(shared.accounting) <= 40 + shared.limits.reserve


class SocketWithoutDescriptors(socket.socket):
    """A listening socket of a process that has no free descriptors."""

    left = 0

    def accept(self) -> tuple[socket.socket, object]:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.mark.slow
async def test_r7_a_lack_of_descriptors_is_logged_once_and_the_server_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R7: existing connections are closed to free descriptors."""
    listening = SocketWithoutDescriptors()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    accounting = ClientShares(Limits())
    ended: list[ClientConnection] = []
    for _ in range(30):
        connection = accounting.admit("127.0.0.9")
        connection.abort = lambda one=connection: ended.append(one)  # type: ignore[misc]
    accepted = asyncio.Event()

    async def serve(connection: socket.socket, _: ClientConnection) -> None:
        accepted.set()
        connection.close()

    caplog.set_level(logging.INFO)
    acceptor = Acceptor(listening, serve, accounting)
    try:
        _, writer = await asyncio.open_connection(*listening.getsockname())
        await asyncio.sleep(0.5)
        assert not accepted.is_set()
        (record,) = caplog.records
        assert "cannot accept a connection: Too many open files" in record.getMessage()
        assert "ulimit -n" in record.getMessage()
        assert 8 <= len(ended) <= 22, "some connections stay, and some are closed"
        listening.left = 1
        async with asyncio.timeout(5):
            await accepted.wait()
        writer.close()
    finally:
        acceptor.close()
