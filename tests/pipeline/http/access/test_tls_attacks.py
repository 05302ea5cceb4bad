"""Tests of attacks over TLS: what podgpu holds for each connection, and for ended ones."""

import asyncio
import gc
import os
import socket
import ssl
from collections import Counter
from pathlib import Path

import pytest

from pipeline.http.connections import Handler
from tests.support.attackers import Socket, get
from tests.support.http import LOCAL, says
from tests.support.web import Web

PAGE = b"x" * 1_000_000


def tls_client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def held() -> Counter[str]:
    """Return the number of TLS objects and handlers that are not freed."""
    names = (type(one).__name__ for one in gc.get_objects())
    return Counter(name for name in names if name in ("SSLProtocol", "SSLObject", "Handler"))


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"])
async def test_ended_handshakes_leave_nothing_for_the_garbage_collector(
    sent: bytes, tmp_path: Path
) -> None:
    """The memory of evicted, disconnected and failed handshakes is freed immediately."""
    web = Web(tmp_path, connections=4, reserve=2)
    web.secure()
    async with web.serving():
        gc.freeze()  # what exists now is not in `held`
        gc.disable()
        try:
            sockets = list[Socket]()
            for at in range(20):
                sockets.append(Socket(f"127.1.0.{at + 1}", web.port))
                await sockets[-1].connect()
                await sockets[-1].send(sent)
            async with asyncio.timeout(5):
                while max(held().values(), default=0) > 6:
                    await asyncio.sleep(0.01)
                for one in sockets:
                    one.close()
                while held():
                    await asyncio.sleep(0.01)
            assert not len(web.listeners.accounting)
        finally:
            gc.enable()
            gc.unfreeze()


async def test_a_client_that_does_not_read_has_little_unread_in_memory(tmp_path: Path) -> None:
    web = Web(tmp_path)
    web.secure()
    async with web.serving(), web.listeners.listen(LOCAL) as mounts:
        mounts.mount("/page", says(PAGE), title="P")
        connection = socket.create_connection(("127.0.0.1", mounts.port))
        _, writer = await asyncio.open_connection(
            sock=connection, ssl=tls_client(), server_hostname="podgpu", limit=1
        )
        writer.write(get("/page") * 10_000)
        await asyncio.sleep(0.2)
        servers = [listener._server for listener in web.listeners._listeners.values()]
        (handler,) = [handler for server in servers for handler in server.connections]
        transport = handler.transport
        assert isinstance(transport, asyncio.Transport)
        assert transport.get_write_buffer_size() <= 2 * web.listeners.limits.write_bytes
        assert transport.get_read_buffer_size() <= 1 << 15  # type: ignore[attr-defined]
        writer.transport.abort()


async def test_a_tls_record_may_arrive_in_parts(tmp_path: Path) -> None:
    """The largest record is larger than the limit of unread data."""
    web = Web(tmp_path)
    web.secure()
    async with web.serving():
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = tls_client().wrap_bio(incoming, outgoing)
        client = Socket("127.0.0.1", web.port)
        await client.connect()
        connected = False
        while not connected:
            try:
                tls.do_handshake()
                connected = True
            except ssl.SSLWantReadError:
                await client.send(outgoing.read())
                incoming.write(await client.read())
        request = get("/healthz", *(f"X{at}: {'h' * 900}" for at in range(15)))
        assert tls.write(request) == len(request)
        record = outgoing.read()
        for start in range(0, len(record), 5000):
            await client.send(record[start : start + 5000])
            await asyncio.sleep(0.01)
        answer = b""
        async with asyncio.timeout(5):
            while b"ok\n" not in answer:
                try:
                    answer += tls.read()
                except ssl.SSLWantReadError:
                    incoming.write(await client.read())
        client.close()


async def test_a_listener_that_closes_during_the_end_of_a_handshake_closes_no_watched_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the event loop misses events of the next socket with the same descriptor."""
    web = Web(tmp_path)
    web.secure()
    made = Handler.connection_made
    async with web.serving():
        (listener,) = web.listeners._listeners.values()

        def closing(handler: Handler, transport: asyncio.BaseTransport) -> None:
            for task in listener._acceptor._opening:  # as the acceptor does
                task.cancel()
            made(handler, transport)

        monkeypatch.setattr(Handler, "connection_made", closing)
        connection = socket.create_connection(("127.0.0.1", web.port))
        _, writer = await asyncio.open_connection(
            sock=connection, ssl=tls_client(), server_hostname="podgpu"
        )
        # The client does not answer the server's close_notify.
        writer.transport._ssl_protocol._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        for descriptor in selector.get_map():
            os.fstat(descriptor)
        writer.transport.abort()
