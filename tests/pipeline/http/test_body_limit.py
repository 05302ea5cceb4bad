"""Tests of the limits on request bodies: each one's size, their total size, and their time."""

import asyncio
import gc
import gzip
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from pipeline.component.contracts import HttpRequest, HttpResponse, Refusal
from pipeline.http.listener_registry import ListenerRegistry
from tests.support.http import LOCAL, Client, Clients, Connect, listeners, says

SOON = 10.0


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with Clients() as clients:
        yield clients.connect


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


def held(shared: ListenerRegistry) -> int:
    """Return the number of bytes that are held, without the heads of requests."""
    accounting = shared.accounting
    return accounting.held - sum(connection.head for connection in accounting._holding)


async def until_held(shared: ListenerRegistry, size: int) -> None:
    async with asyncio.timeout(SOON):
        while held(shared) != size:
            await asyncio.sleep(0.005)


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable the garbage collector, so that only reference counts release objects."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def post(body: bytes, *lines: str, path: str = "/ask") -> bytes:
    length = f"Content-Length: {len(body)}"
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", length, *lines, "", ""])
    return head.encode() + body


def chunked(*pieces: bytes) -> bytes:
    head = b"POST /ask HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


@pytest.mark.parametrize("body", [b"", b"x", b"\x00\xff" * 500, b"y" * 1000])
async def test_a_body_is_read_whole(body: bytes, connect: Connect) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        for sent in (post(body), chunked(body[:500], body[500:]) if len(body) > 1 else post(body)):
            client.send(sent)
            status, _, answer = await client.answer()
            assert (status, answer) == (200, body)


@pytest.mark.parametrize("sent", [post(b"z" * 1001), chunked(b"z" * 600, b"z" * 600)])
async def test_a_body_over_the_limit_is_refused(sent: bytes, connect: Connect) -> None:
    shared = listeners()
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send(sent)
        status, _, answer = await client.answer()
        assert (status, answer) == (413, b"the body is longer than 1000 bytes\n")
        assert await (await connect(mounts.port)).get("/readyz") == (503, "no readings yet\n")
        assert held(shared) == 0


@pytest.mark.slow
async def test_a_body_with_a_content_length_over_the_limit_is_refused_immediately(
    connect: Connect,
) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send("POST /ask HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert (await client.answer())[0] == 413
        assert await client.ended()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x"])
async def test_a_compressed_body_is_refused(encoding: str, connect: Connect) -> None:
    """Its decompressed size has no limit."""
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send(post(gzip.compress(b"0" * 1_000_000)[:900], f"Content-Encoding: {encoding}"))
        assert (await client.answer())[0] == 415


@pytest.mark.parametrize(
    ("methods", "method", "message"),
    [
        (("POST",), "GET", "only POST is allowed\n"),
        (("POST",), "PUT", "only POST is allowed\n"),
        (("GET", "HEAD"), "POST", "only GET and HEAD are allowed\n"),
        (("GET", "HEAD", "POST"), "DELETE", "only GET and HEAD and POST are allowed\n"),
    ],
)
async def test_a_method_that_a_path_does_not_have_gets_status_405(
    methods: tuple[str, ...], method: str, message: str, connect: Connect
) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=methods)
        client = await connect(mounts.port)
        client.send(f"{method} /ask HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = await client.answer()
        assert (status, body.decode(), headers["allow"]) == (405, message, ", ".join(methods))


async def test_a_handler_without_a_body_limit_gets_an_empty_body(connect: Connect) -> None:
    async def show(request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"nothing" if request.body == b"" else request.body)

    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/show", show, title="S")
        client = await connect(mounts.port)
        client.send(post(b"body", path="/show").replace(b"POST", b"GET", 1))
        assert (await client.answer())[2] == b"nothing"


@pytest.mark.parametrize("pieces", [0, 1])
async def test_a_body_that_does_not_arrive_ends_with_the_timeout_of_a_response(
    pieces: int, connect: Connect
) -> None:
    async with listeners(handler_seconds=0.1).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send(post(b"x" * 500)[: -500 + pieces])
        async with asyncio.timeout(10):
            status, _, answer = await client.answer()
        assert (status, answer) == (503, b"/ask took too long\n")


async def test_the_total_size_of_all_bodies_is_limited(connect: Connect) -> None:
    gate, taken = asyncio.Event(), asyncio.Semaphore(0)

    async def waits(request: HttpRequest) -> HttpResponse:
        taken.release()
        await gate.wait()
        return HttpResponse(request.body[:4])

    shared = listeners(bytes=2500 - 1000)
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", waits, title="A", methods=("POST",), body_bytes=1000)
        mounts.mount("/show", says("shown"), title="S")
        first = [await connect(mounts.port) for _ in range(2)]
        for client in first:
            client.send(post(b"1234" * 250))
            await taken.acquire()
        third = await connect(mounts.port)
        third.send(post(b"x" * 1000))
        status, _, answer = await third.answer()
        assert status == 503
        assert answer.startswith(b"too many large requests")
        assert await (await connect(mounts.port)).get("/show") == (200, "shown")
        gate.set()
        assert [(await client.answer())[2] for client in first] == [b"1234"] * 2
        fourth = await connect(mounts.port)
        fourth.send(post(b"x" * 1000))
        assert (await fourth.answer())[0] == 200
        assert held(shared) == 0


@pytest.mark.slow
async def test_announced_bodies_that_do_not_arrive_exclude_no_other_request(
    connect: Connect,
) -> None:
    async with listeners(bytes=2500).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        for _ in range(20):
            (await connect(mounts.port)).send(post(b"x" * 1000)[:-1000])
        client = await connect(mounts.port)
        client.send(post(b"y" * 1000))
        assert (await client.answer())[0] == 200


# Slow clients are closed first.


async def start_post(connect: Connect, port: int, size: int, sent: int) -> Client:
    """Announce a body and send a part of it."""
    client = await connect(port)
    client.send(post(b"s" * size)[: sent - size or None])
    return client


@pytest.mark.slow
async def test_bodies_that_do_not_arrive_exclude_no_probe(connect: Connect) -> None:
    shared = listeners(connections=8)
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        slow = [await start_post(connect, mounts.port, 1000, 1) for _ in range(8)]
        await until_held(shared, 8)
        client = await connect(mounts.port)
        assert await client.get("/healthz") == (200, "ok\n")
        assert await slow[0].ended(), "it is the one that has waited longest"
        await until_held(shared, 7)


async def test_the_oldest_request_of_one_source_is_closed_first(connect: Connect) -> None:
    shared = listeners(bytes=1700)
    refusals: list[Refusal] = []
    async with shared.listen(LOCAL) as mounts:
        mounts.mount(
            "/ask",
            says("done"),
            title="A",
            methods=("POST",),
            body_bytes=1000,
            refused=refusals.append,
        )
        slow = [await start_post(connect, mounts.port, 1000, 900)]
        await until_held(shared, 900)
        slow.append(await start_post(connect, mounts.port, 1000, 900))
        await until_held(shared, 1800)
        client = await connect(mounts.port)
        client.send(post(b"y" * 1000))
        assert (await client.answer())[0] == 200
        status, headers, answer = await slow[0].answer()
        assert (status, headers["connection"], answer[:8]) == (503, "close", b"too many")
        slow[1].send(b"s" * 100)
        assert (await slow[1].answer())[0] == 200
        assert refusals == ["busy"]
        await until_held(shared, 0)


async def test_r14_large_bodies_of_a_source_do_not_exclude_small_ones_of_another() -> None:
    """R14: the source with most bytes is closed, also if its requests are being handled."""
    started, gate = asyncio.Semaphore(0), asyncio.Event()

    async def waits(request: HttpRequest) -> HttpResponse:
        started.release()
        if len(request.body) > 500:
            await gate.wait()
        return HttpResponse(request.body)

    shared = listeners(bytes=1500)
    async with shared.listen(LOCAL) as mounts, Clients() as clients:
        mounts.mount("/ask", waits, title="A", methods=("POST",), body_bytes=1000)
        larges = []
        for _ in range(2):
            large = await clients.connect(mounts.port, source="127.0.0.2")
            large.send(post(b"y" * 1000))
            larges.append(large)
            await started.acquire()
        for _ in range(3):
            client = await clients.connect(mounts.port, source="127.0.0.3")
            client.send(post(b"y" * 450))
            assert (await client.answer())[0] == 200
        assert await larges[-1].ended()
        gate.set()


# For how long bytes are counted.


@pytest.mark.slow
async def test_a_body_is_counted_as_long_as_it_is_referenced(connect: Connect) -> None:
    """Also in a thread that continues after the response was sent or the client disconnected."""
    kept: list[bytes] = []

    async def keeps(request: HttpRequest) -> HttpResponse:
        kept.append(request.body)
        return HttpResponse(b"kept")

    shared = listeners()
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", keeps, title="A", methods=("POST",), body_bytes=1000)
        with without_collections():
            client = await connect(mounts.port)
            client.send(post(b"x" * 900))
            assert (await client.answer())[2] == b"kept"
            await until_held(shared, 900)
            await asyncio.to_thread(kept.clear)
            await until_held(shared, 0)


@pytest.mark.slow
async def test_a_body_whose_handler_fails_is_released_immediately(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(request: HttpRequest) -> HttpResponse:
        raise ValueError(len(request.body))

    # Without this, pytest's log capture keeps the error.
    caplog.set_level(logging.CRITICAL, "podgpu.http")
    shared = listeners()
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", fails, title="A", methods=("POST",), body_bytes=1000)
        with without_collections():
            client = await connect(mounts.port)
            client.send(post(b"x" * 900))
            assert (await client.answer())[0] == 500
            await until_held(shared, 0)


async def test_a_response_is_counted_until_it_is_sent(connect: Connect) -> None:
    size = 30 << 20

    async def large(_: HttpRequest) -> HttpResponse:
        return HttpResponse(bytes(size))

    shared = listeners(bytes=size // 2)
    async with shared.listen(LOCAL) as mounts, Clients() as clients:
        mounts.mount("/ask", large, title="A", methods=("POST",), body_bytes=size // 2)
        slow = await clients.connect(mounts.port, source="127.0.0.2")
        slow.send(post(b"x"))
        await until_held(shared, size)
        # A client that reads its response slowly is closed, too.
        client = await connect(mounts.port)
        client.send(post(b"y" * (4 << 20)))
        assert len((await client.answer())[2]) == size
        with pytest.raises(asyncio.IncompleteReadError):
            await slow.answer()
        await until_held(shared, 0)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (post(b"z" * 1001), "too_long"),
        (chunked(b"z" * 600, b"z" * 600), "too_long"),
        (post(b"z", "Content-Encoding: gzip"), "encoded"),
        (post(b"z" * 900), "busy"),
        (post(b"z" * 100)[:-1], "unfinished"),
    ],
)
async def test_the_reason_for_a_refusal_is_reported_to_the_handler(
    sent: bytes, reason: Refusal, connect: Connect
) -> None:
    refusals: list[Refusal] = []
    room = -150 if reason == "busy" else 1000
    async with listeners(bytes=room, handler_seconds=0.2).listen(LOCAL) as mounts:
        mounts.mount(
            "/ask", echo, title="A", methods=("POST",), body_bytes=1000, refused=refusals.append
        )
        client = await connect(mounts.port)
        client.send(sent)
        await client.answer()
        assert refusals == [reason]


@pytest.mark.slow
async def test_a_client_that_sends_all_before_it_reads_gets_the_refusal(connect: Connect) -> None:
    """As most clients do. If the rest is not read, they get a broken connection instead."""
    async with listeners(linger_seconds=SOON).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", mounts.port), timeout=SOON) as plain:
                plain.sendall(post(b"z" * (40 << 20)))
                return plain.recv(100)

        assert (await asyncio.to_thread(ask)).startswith(b"HTTP/1.1 413 ")
        # The rest is read for a limited time only.
    async with listeners(linger_seconds=0.1).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await start_post(connect, mounts.port, 2000, 5)
        assert (await client.answer())[0] == 413
        async with asyncio.timeout(SOON):
            assert await client.ended()
