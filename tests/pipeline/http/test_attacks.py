"""Clients that mean harm: what they cost is bounded, and others are answered meanwhile."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.http.acceptor import Acceptor
from pipeline.http.client_shares import ClientAccounting, ClientConnection
from pipeline.http.limits import Limits
from pipeline.http.listener_registry import Listeners
from tests.support.attackers import Socket, get
from tests.support.http import LOCAL, Client, Clients, listeners, says

PAGE = b"x" * 300_000


class Attackers:
    """Raw connections, which end with the test."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open: list[Socket] = []

    async def connect(self, number: int, *, sources: int) -> list[Socket]:
        made = [Socket(f"127.1.0.{at % sources + 1}", self.port) for at in range(number)]
        self.open += made
        await asyncio.gather(*(one.connect() for one in made))
        return made

    async def send(self, data: bytes, *, to: list[Socket]) -> None:
        """Send what the other side takes within a moment."""
        sending = [asyncio.create_task(one.send(data)) for one in to]
        await asyncio.wait(sending, timeout=0.5)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


@asynccontextmanager
async def attacked(shared: Listeners) -> AsyncIterator[tuple[Attackers, Clients, list[str]]]:
    """Serve a page, and count who got it begun."""
    begun: list[str] = []

    async def page(request: HttpRequest) -> HttpResponse:
        begun.append(request.source)
        return HttpResponse(PAGE)

    async with shared.listen(LOCAL) as mounts, Clients() as clients:
        mounts.mount("/page", page, title="P")
        mounts.mount("/small", says("small"), title="S")
        attackers = Attackers(mounts.port)
        try:
            yield attackers, clients, begun
        finally:
            for one in attackers.open:
                one.close()


def written(shared: Listeners) -> int:
    """Return the bytes that wait to be sent, of all connections."""
    servers = [listener._server for listener in shared._listeners.values()]
    handlers = [handler for server in servers if server for handler in server.connections]
    return sum(one.transport.get_write_buffer_size() for one in handlers if one.transport)


async def answered(clients: Clients, port: int, path: str = "/page") -> None:
    async with asyncio.timeout(2):
        client: Client = await clients.connect(port)
        assert (await client.get(path))[0] == 200


@pytest.mark.parametrize("path", ["/page", "/small", "/", "/healthz", "/nothing"])
@pytest.mark.parametrize(("number", "sources"), [(1, 1), (50, 1), (50, 50)])
async def test_r1_who_does_not_read_gets_no_further_answer(
    path: str, number: int, sources: int
) -> None:
    shared = listeners()
    async with attacked(shared) as (attackers, clients, begun):
        hostile = await attackers.connect(number, sources=sources)
        await attackers.send(get(path) * 500, to=hostile)
        assert written(shared) <= number * 2 * shared.limits.write_bytes
        assert shared.accounting.held <= shared.limits.bytes + len(PAGE)
        if path == "/page":
            assert len(begun) <= number, "a page doesn't fit into what the kernel buffers"
        await answered(clients, attackers.port)


@pytest.mark.parametrize("sources", [1, 50])
async def test_r2_half_a_request_is_bounded(sources: int) -> None:
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
        async with asyncio.timeout(5):  # all of them are too long
            while shared.accounting.held:
                await asyncio.sleep(0.01)
        await answered(clients, attackers.port)


async def test_r2_too_long_a_request_is_reported_so() -> None:
    async with attacked(listeners()) as (attackers, clients, _):
        client = await clients.connect(attackers.port)
        client.send(
            b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: %b\r\n" % (at, b"h" * 900) for at in range(30))
        )
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (431, "close")
        assert await client.ended()


@pytest.mark.parametrize("sources", [1, 100])
async def test_r9_the_event_loop_is_free_while_many_ask(sources: int) -> None:
    """So that sampling goes on: each of its rounds begins few answers."""
    rounds, shared = 0, listeners()
    async with attacked(shared) as (attackers, clients, begun):
        hostile = await attackers.connect(100, sources=sources)
        await asyncio.sleep(0.2)
        asking = asyncio.create_task(attackers.send(get("/page") * 20, to=hostile))
        at_most = 0
        while not asking.done():
            before = len(begun)
            await asyncio.sleep(0)
            rounds += 1
            at_most = max(at_most, len(begun) - before)
        assert 0 < at_most <= 4
        await answered(clients, attackers.port)


@pytest.mark.parametrize("sources", [1, 100])
async def test_connections_beyond_the_limit_keep_no_other_source_out(sources: int) -> None:
    shared = listeners(connections=40)
    async with attacked(shared) as (attackers, clients, _):
        for _ in range(3):
            hostile = await attackers.connect(100, sources=sources)
            await attackers.send(get("/page"), to=hostile)
            for path in ("/page", "/healthz"):
                await answered(clients, attackers.port, path)
        assert len(shared.accounting) <= 40 + shared.limits.reserve


class Short(socket.socket):
    """A listening socket of a process that has no descriptors left."""

    left = 0

    def accept(self) -> tuple[socket.socket, object]:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_r7_out_of_descriptors_is_one_line_and_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And one of the connections that are there makes room."""
    listening = Short()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    shares = ClientAccounting(Limits())
    ended: list[ClientConnection] = []
    for _ in range(30):
        guest = shares.admit("127.0.0.9")
        guest.abort = lambda guest=guest: ended.append(guest)  # type: ignore[misc]
    taken = asyncio.Event()

    class Taking(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.set()
            transport.close()

    caplog.set_level(logging.INFO)
    acceptor = Acceptor(listening, lambda _: Taking(), shares)
    try:
        _, writer = await asyncio.open_connection(*listening.getsockname())
        await asyncio.sleep(0.5)
        assert not taken.is_set()
        (record,) = caplog.records
        assert "cannot accept a connection: Too many open files" in record.getMessage()
        assert "ulimit -n" in record.getMessage()
        assert 8 <= len(ended) <= 22, "some stay, and some make room"
        listening.left = 1
        async with asyncio.timeout(5):
            await taken.wait()
        writer.close()
    finally:
        acceptor.close()
