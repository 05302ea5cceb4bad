"""Bodies of requests: within a bound for each, for all of them together, and in time."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from pipeline.contracts import HttpRequest, HttpResponse
from tests.support.http import LOCAL, Clients, Connect, listeners, says


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with Clients() as clients:
        yield clients.connect


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


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
        (listener,) = shared._listeners.values()
        assert listener._bodies.held == 0


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
    ("methods", "asked", "told"),
    [
        (("POST",), "GET", "only POST is served\n"),
        (("POST",), "PUT", "only POST is served\n"),
        (("GET", "HEAD"), "POST", "only GET and HEAD are served\n"),
        (("GET", "HEAD", "POST"), "DELETE", "only GET and HEAD and POST are served\n"),
    ],
)
async def test_other_methods(
    methods: tuple[str, ...], asked: str, told: str, connect: Connect
) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=methods)
        client = await connect(mounts.port)
        client.send(f"{asked} /ask HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = await client.answer()
        assert (status, body.decode(), headers["allow"]) == (405, told, ", ".join(methods))


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
    gate, held = asyncio.Event(), asyncio.Semaphore(0)

    async def waits(request: HttpRequest) -> HttpResponse:
        held.release()
        await gate.wait()
        return HttpResponse(request.body[:4])

    shared = listeners(body_bytes=2500)
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/ask", waits, title="A", methods=("POST",), body_bytes=1000)
        mounts.mount("/show", says("shown"), title="S")
        first = [await connect(mounts.port) for _ in range(2)]
        for client in first:
            client.send(post(b"1234" * 250))
            await held.acquire()
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
        (listener,) = shared._listeners.values()
        assert listener._bodies.held == 0


async def test_who_announces_much_and_sends_nothing_keeps_nobody_out(connect: Connect) -> None:
    async with listeners(body_bytes=1500).listen(LOCAL) as mounts:
        mounts.mount("/ask", echo, title="A", methods=("POST",), body_bytes=1000)
        for _ in range(20):
            (await connect(mounts.port)).send(post(b"x" * 1000)[:-1000])
        client = await connect(mounts.port)
        client.send(post(b"y" * 1000))
        assert (await client.answer())[0] == 200
