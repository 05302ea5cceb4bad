"""Bodies of requests: within a bound for each, for all of them together, and in time."""

import asyncio
import gc
import gzip
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from pipeline.component.contracts import HttpRequest, HttpResponse, Refusal
from pipeline.http.listener_registry import Listeners
from tests.support.http import LOCAL, Client, Clients, Connect, listeners, says

SOON = 10.0


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with Clients() as clients:
        yield clients.connect


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


def held(shared: Listeners) -> int:
    """Return the bytes that are held, without the heads of requests."""
    shares = shared.accounting
    return shares.held - sum(guest.head for guest in shares._holding)


async def until_held(shared: Listeners, size: int) -> None:
    async with asyncio.timeout(SOON):
        while held(shared) != size:
            await asyncio.sleep(0.005)


@contextmanager
def without_collections() -> Iterator[None]:
    """What is let go of only by the garbage collector stays."""
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
async def test_a_longer_one_is_refused(sent: bytes, connect: Connect) -> None:
    shared = listeners()
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send(sent)
        status, _, answer = await client.answer()
        assert (status, answer) == (413, b"the body is longer than 1000 bytes\n")
        assert await (await connect(mounts.port)).get("/readyz") == (503, "no readings yet\n")
        assert held(shared) == 0


async def test_one_that_is_announced_too_long_is_not_waited_for(connect: Connect) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send("POST /ask HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert (await client.answer())[0] == 413
        assert await client.ended()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x"])
async def test_an_encoded_one_is_refused(encoding: str, connect: Connect) -> None:
    """It would be as long as it likes."""
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send(post(gzip.compress(b"0" * 1_000_000)[:900], f"Content-Encoding: {encoding}"))
        assert (await client.answer())[0] == 415


@pytest.mark.parametrize(
    ("methods", "asked", "given_out"),
    [
        (("POST",), "GET", "only POST is allowed\n"),
        (("POST",), "PUT", "only POST is allowed\n"),
        (("GET", "HEAD"), "POST", "only GET and HEAD are allowed\n"),
        (("GET", "HEAD", "POST"), "DELETE", "only GET and HEAD and POST are allowed\n"),
    ],
)
async def test_other_methods(
    methods: tuple[str, ...], asked: str, given_out: str, connect: Connect
) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=methods)
        client = await connect(mounts.port)
        client.send(f"{asked} /ask HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = await client.answer()
        assert (status, body.decode(), headers["allow"]) == (405, given_out, ", ".join(methods))


async def test_who_looks_at_no_body_gets_none(connect: Connect) -> None:
    async def shows(request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"nothing" if request.body == b"" else request.body)

    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/show", shows, title="S")
        client = await connect(mounts.port)
        client.send(post(b"body", path="/show").replace(b"POST", b"GET", 1))
        assert (await client.answer())[2] == b"nothing"


@pytest.mark.parametrize("pieces", [0, 1])
async def test_a_body_that_does_not_come_takes_no_longer_than_an_answer(
    pieces: int, connect: Connect
) -> None:
    async with listeners(handler_seconds=0.1).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await connect(mounts.port)
        client.send(post(b"x" * 500)[: -500 + pieces])
        async with asyncio.timeout(10):
            status, _, answer = await client.answer()
        assert (status, answer) == (503, b"/ask took too long\n")


async def test_together_they_have_no_more_than_so_many_bytes(connect: Connect) -> None:
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


async def test_who_announces_much_and_sends_nothing_keeps_no_one_out(connect: Connect) -> None:
    async with listeners(bytes=2500).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        for _ in range(20):
            (await connect(mounts.port)).send(post(b"x" * 1000)[:-1000])
        client = await connect(mounts.port)
        client.send(post(b"y" * 1000))
        assert (await client.answer())[0] == 200


# Who is slow gives way.


async def begun(connect: Connect, port: int, size: int, sent: int) -> Client:
    """Announce a body, and send a part of it."""
    client = await connect(port)
    client.send(post(b"s" * size)[: sent - size or None])
    return client


async def test_bodies_that_dont_come_take_no_connection_from_a_probe(connect: Connect) -> None:
    shared = listeners(connections=8)
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        slow = [await begun(connect, mounts.port, 1000, 1) for _ in range(8)]
        await until_held(shared, 8)
        client = await connect(mounts.port)
        assert await client.get("/healthz") == (200, "ok\n")
        assert await slow[0].ended(), "it has waited longest"
        await until_held(shared, 7)


async def test_the_oldest_of_one_source_gives_way(connect: Connect) -> None:
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
        slow = [await begun(connect, mounts.port, 1000, 900)]
        await until_held(shared, 900)
        slow.append(await begun(connect, mounts.port, 1000, 900))
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


async def test_r14_large_ones_of_a_source_keep_no_small_one_of_another_out() -> None:
    """Be they coming, or worked on: who has most makes room."""
    begun, gate = asyncio.Semaphore(0), asyncio.Event()

    async def waits(request: HttpRequest) -> HttpResponse:
        begun.release()
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
            await begun.acquire()
        for _ in range(3):
            client = await clients.connect(mounts.port, source="127.0.0.3")
            client.send(post(b"y" * 450))
            assert (await client.answer())[0] == 200
        assert await larges[-1].ended()
        gate.set()


# What is counted, and for how long.


async def test_a_body_counts_for_as_long_as_anybody_has_it(connect: Connect) -> None:
    """Even a thread that goes on after its answer was sent, or its client has hung up."""
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


async def test_a_body_whose_handler_fails_is_release_at_once(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(request: HttpRequest) -> HttpResponse:
        raise ValueError(len(request.body))

    # What is logged is kept here, and the error with it.
    caplog.set_level(logging.CRITICAL, "podgpu.http")
    shared = listeners()
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", fails, title="A", methods=("POST",), body_bytes=1000)
        with without_collections():
            client = await connect(mounts.port)
            client.send(post(b"x" * 900))
            assert (await client.answer())[0] == 500
            await until_held(shared, 0)


async def test_an_answer_counts_until_it_is_sent(connect: Connect) -> None:
    size = 30 << 20

    async def much(_: HttpRequest) -> HttpResponse:
        return HttpResponse(bytes(size))

    shared = listeners(bytes=size // 2)
    async with shared.listen(LOCAL) as mounts, Clients() as clients:
        mounts.mount("/ask", much, title="A", methods=("POST",), body_bytes=size // 2)
        slow = await clients.connect(mounts.port, source="127.0.0.2")
        slow.send(post(b"x"))
        await until_held(shared, size)
        # Who takes it slowly gives way, too.
        client = await connect(mounts.port)
        client.send(post(b"y" * (4 << 20)))
        assert len((await client.answer())[2]) == size
        with pytest.raises(asyncio.IncompleteReadError):
            await slow.answer()
        await until_held(shared, 0)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (post(b"z" * 1001), "too_long"),
        (chunked(b"z" * 600, b"z" * 600), "too_long"),
        (post(b"z", "Content-Encoding: gzip"), "encoded"),
        (post(b"z" * 900), "busy"),
        (post(b"z" * 100)[:-1], "unfinished"),
    ],
)
async def test_who_is_not_asked_is_reported_why(
    sent: bytes, why: Refusal, connect: Connect
) -> None:
    refusals: list[Refusal] = []
    room = -150 if why == "busy" else 1000
    async with listeners(bytes=room, handler_seconds=0.2).listen(LOCAL) as mounts:
        mounts.mount(
            "/ask", echo, title="A", methods=("POST",), body_bytes=1000, refused=refusals.append
        )
        client = await connect(mounts.port)
        client.send(sent)
        await client.answer()
        assert refusals == [why]


async def test_who_sends_all_before_reading_is_reported_too(connect: Connect) -> None:
    """As most clients do: without somebody who takes the rest they see a connection that broke."""
    async with listeners(linger_seconds=SOON).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", mounts.port), timeout=SOON) as plain:
                plain.sendall(post(b"z" * (40 << 20)))
                return plain.recv(100)

        assert (await asyncio.to_thread(ask)).startswith(b"HTTP/1.1 413 ")
        # Not for ever, though.
    async with listeners(linger_seconds=0.1).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        client = await begun(connect, mounts.port, 2000, 5)
        assert (await client.answer())[0] == 413
        async with asyncio.timeout(SOON):
            assert await client.ended()
