"""Tests of the HTTP server with many, slow, idle or malicious clients."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.http.allowed_hosts import Hosts
from tests.support.examples import examples
from tests.support.http import LOCAL, Client, Clients, Connect, listeners, says


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with Clients() as clients:
        yield clients.connect


@pytest.mark.slow
async def test_many_scrapes_at_the_same_time_succeed(connect: Connect) -> None:
    page = "x" * 300_000
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says(page), title="A")
        clients = await asyncio.gather(*(connect(mounts.port) for _ in range(200)))
        answers = await asyncio.gather(*(client.get("/a") for client in clients))
        assert set(answers) == {(200, page)}


@pytest.mark.parametrize("host", ["xn--", "xn--a", "a.xn--0", "a..b", "a" * 300, "[1::2::3]", "%"])
async def test_a_request_with_an_invalid_host_gets_a_response(host: str, connect: Connect) -> None:
    """Otherwise its connection stays open without a response."""
    every = Hosts()
    every.allow((), ["*"])
    async with listeners(every).listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A")
        client = await connect(mounts.port)
        async with asyncio.timeout(5):
            assert await client.get(f"http://{host}/a?b=c") == (200, "a")
            assert await client.get("/a") == (200, "a")


async def test_a_path_cannot_inject_a_line_into_the_log(
    connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> HttpResponse:
        raise ValueError

    shared = listeners()
    async with shared.listen(LOCAL) as mounts:
        (listener,) = shared._listeners.values()
        monkeypatch.setattr(listener, "_route", fails)
        client = await connect(mounts.port)
        assert (await client.get("/%0aERROR%20made%20up"))[0] == 500
    assert '"/\\nERROR made up": the handler failed' in caplog.text


async def test_idle_connections_do_not_exclude_a_scraper(connect: Connect) -> None:
    shared = listeners(connections=10)
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A")
        idle = [await connect(mounts.port) for _ in range(50)]
        client = await connect(mounts.port)
        assert await client.get("/a") == (200, "a")
        assert len(shared.accounting) <= 10
        assert await idle[0].ended()


@pytest.mark.slow
async def test_a_new_connection_gets_503_if_all_are_busy(connect: Connect) -> None:
    gate = asyncio.Event()

    async def waits(_: HttpRequest) -> HttpResponse:
        await gate.wait()
        return HttpResponse(b"done")

    async with listeners(connections=3).listen(LOCAL) as mounts:
        mounts.mount("/wait", waits, title="w")
        busy = [await connect(mounts.port) for _ in range(3)]
        waiting = [asyncio.create_task(client.get("/wait")) for client in busy]
        await asyncio.sleep(0.05)
        further = await connect(mounts.port)
        further.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = await further.answer()
        assert (status, headers["connection"], body) == (503, "close", b"too many connections\n")
        assert await further.ended()
        gate.set()
        assert set(await asyncio.gather(*waiting)) == {(200, "done")}


@pytest.mark.slow
async def test_a_client_that_sends_headers_slowly_is_disconnected(connect: Connect) -> None:
    async with listeners(idle_seconds=0.3).listen(LOCAL) as mounts:
        client = await connect(mounts.port)

        async def trickle() -> None:
            client.send("GET / HTTP/1.1\r\n")
            while True:
                client.send("X")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        async with asyncio.timeout(5):
            assert await client.ended()
        trickling.cancel()


async def test_a_connection_that_is_idle_after_its_response_is_closed(connect: Connect) -> None:
    async with listeners(idle_seconds=0.2).listen(LOCAL) as mounts:
        client = await connect(mounts.port)
        assert (await client.get("/healthz"))[0] == 200
        async with asyncio.timeout(5):
            assert await client.ended()


@pytest.mark.slow
async def test_a_client_that_reads_too_slowly_is_disconnected_and_uses_little_memory(
    connect: Connect,
) -> None:
    shared = listeners(send_seconds=0.5)
    page = b"x" * 50_000_000
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/large", says(page), title="L")
        mounts.mount("/a", says("a"), title="A")
        slow = [await connect(mounts.port) for _ in range(5)]
        for client in slow:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.2)
        (listener,) = shared._listeners.values()
        assert listener._server is not None
        handlers = listener._server.connections
        waiting = [one.transport.get_write_buffer_size() for one in handlers if one.transport]
        assert len(waiting) == 5
        assert max(waiting) < 2 * shared.limits.write_bytes
        quick = await connect(mounts.port)
        start = time.perf_counter()
        assert await quick.get("/a") == (200, "a")
        assert time.perf_counter() - start < 0.2
        await asyncio.sleep(0.6)
        for client in slow:
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(10):
            assert all(await asyncio.gather(*(client.ended() for client in slow)))


@pytest.mark.slow
async def test_the_shutdown_waits_only_briefly_for_clients(connect: Connect) -> None:
    async def hangs(_: HttpRequest) -> HttpResponse:
        await asyncio.sleep(60)
        raise AssertionError

    shared = listeners(close_seconds=0.2)
    async with shared.listen(LOCAL) as mounts:
        mounts.mount("/hang", hangs, title="h")
        mounts.mount("/large", says(b"x" * 50_000_000), title="l")
        clients = [await connect(mounts.port) for _ in range(3)]
        for client, path in zip(clients, ("hang", "large", "readyz"), strict=True):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(f"GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.05)
        start = time.perf_counter()
    assert time.perf_counter() - start < 1


async def test_a_response_in_progress_is_completed_at_the_shutdown(connect: Connect) -> None:
    gate = asyncio.Event()

    async def waits(_: HttpRequest) -> HttpResponse:
        await gate.wait()
        return HttpResponse(b"done")

    shared = listeners()
    lease = shared.listen(LOCAL)
    mounts = await lease.__aenter__()
    mounts.mount("/a", waits, title="A")
    client = await connect(mounts.port)
    answer = asyncio.create_task(client.get("/a"))
    await asyncio.sleep(0.02)
    closing = asyncio.create_task(lease.__aexit__(None, None, None))
    await asyncio.sleep(0.02)
    gate.set()
    assert await answer == (200, "done")
    await closing
    assert await client.ended()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /a HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a HTTP/1.1\r\n" + b"".join(b"X%d: a\r\n" % at for at in range(1000)) + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
        b"GET /a HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
)
async def test_bad_requests_get_400_and_no_log_line(
    request_bytes: bytes, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A")
        caplog.clear()  # the line about the listen address
        client = await connect(mounts.port)
        client.send(request_bytes)
        status, _, body = await client.answer()
        assert status == 400
        assert b"Traceback" not in body
        assert (await (await connect(mounts.port)).get("/a"))[0] == 200
    assert not caplog.records


@pytest.mark.slow
async def test_the_body_of_a_get_request_is_not_waited_for(connect: Connect) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A")
        client = await connect(mounts.port)
        client.send("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nx")
        assert (await client.answer())[2] == b"a"
        async with asyncio.timeout(2):
            assert await client.ended()


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(b"GET /a HTTP/1.1\r\n\r\n")), max_size=6))
@settings(max_examples=examples(40), deadline=None)
async def test_the_server_continues_after_arbitrary_bytes(pieces: list[bytes]) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A")
        _, writer = await asyncio.open_connection("127.0.0.1", mounts.port)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", mounts.port)
        assert await Client(reader, writer).get("/a") == (200, "a")
        writer.close()
        await writer.wait_closed()


async def test_no_descriptor_stays_open(connect: Connect) -> None:
    folder = Path("/proc/self/fd")
    before = len(list(folder.iterdir()))
    for _ in range(20):
        async with listeners().listen(LOCAL) as mounts:
            client = await connect(mounts.port)
            assert (await client.get("/"))[0] == 200
            client.writer.close()
            await client.writer.wait_closed()
    await asyncio.sleep(0.05)
    assert len(list(folder.iterdir())) <= before + 1
