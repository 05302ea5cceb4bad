"""Tests of the shared listeners: leases, mounted paths and responses."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator

import pytest

from config.value_types import ListenAddress
from pipeline.base.errors import PermanentError
from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.http.listener_registry import ListenerRegistry
from tests.support.http import LOCAL, Clients, Connect, listeners, says


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with Clients() as clients:
        yield clients.connect


# Leases and mounts.


async def test_users_of_one_address_share_a_listener_until_the_last_one_leaves(
    connect: Connect,
) -> None:
    shared = listeners()
    async with shared.listen(LOCAL) as first:
        first.mount("/a", says("a"), title="A")
        async with shared.listen(LOCAL) as second:
            assert second.port == first.port
            second.mount("/b", says("b"), title="B")
            client = await connect(first.port)
            assert await client.get("/a") == (200, "a")
            assert await client.get("/b") == (200, "b")
        assert (await client.get("/b"))[0] == 404
        assert await client.get("/a") == (200, "a")
    with pytest.raises(OSError):  # noqa: PT011 - refused, with any message
        await connect(first.port)


async def test_an_address_without_host_is_served_on_one_port_for_both_families() -> None:
    async with listeners().listen(ListenAddress.parse(":0")) as mounts:
        families = ["127.0.0.1"] + (["::1"] if socket.has_dualstack_ipv6() else [])
        for host in families:
            _, writer = await asyncio.open_connection(host, mounts.port)
            writer.close()
            await writer.wait_closed()


async def test_concurrent_leases_of_one_address_share_a_listener() -> None:
    shared = listeners()

    async def port() -> int:
        async with shared.listen(LOCAL) as mounts:
            await asyncio.sleep(0.01)
            return mounts.port

    assert len(set(await asyncio.gather(*(port() for _ in range(20))))) == 1
    assert not shared._listeners


async def test_a_port_that_is_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = ListenAddress("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(PermanentError, match=f"listen {address}: the port is in use"):
            await listeners().listen(address).__aenter__()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EACCES, "denied"), "not permitted; ports below 1024"),
        (OSError(errno.EADDRNOTAVAIL, "no"), "this machine has no such address"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "the host name can't be resolved"),
        (UnicodeError("label too long"), "the host name can't be resolved"),
        (OSError(errno.ENOBUFS, "No buffer space"), "No buffer space"),
    ],
)
async def test_an_address_that_cannot_be_bound_is_an_error_with_its_reason(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: ListenAddress) -> socket.socket:
        raise error

    monkeypatch.setattr("pipeline.http.listener.bind", fails)
    with pytest.raises(PermanentError, match=f"listen 127.0.0.1:0: .*{text}"):
        await listeners().listen(LOCAL).__aenter__()


async def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(PermanentError, match="this machine has no such address"):
        await listeners().listen(ListenAddress("192.0.2.1", 0)).__aenter__()


@pytest.mark.parametrize("path", ["", "metrics", "/a?b", "/a#b", "/a\nb", "/", "/healthz"])
async def test_an_invalid_or_reserved_path_cannot_be_mounted(path: str) -> None:
    async with listeners().listen(LOCAL) as mounts:
        with pytest.raises(PermanentError, match=r"serve 127\.0\.0\.1:0"):
            mounts.mount(path, says(""), title="x")


async def test_a_path_can_be_mounted_only_once(connect: Connect) -> None:
    shared = listeners()
    async with shared.listen(LOCAL) as first, shared.listen(LOCAL) as second:
        first.mount("/a", says("first"), title="the first")
        for mounts in (first, second):
            with pytest.raises(
                PermanentError, match=r"another component uses this path \(the first\)"
            ):
                mounts.mount("/a", says("second"), title="x")
        assert await (await connect(first.port)).get("/a") == (200, "first")


async def test_a_released_lease_cannot_mount() -> None:
    shared = listeners()
    async with shared.listen(LOCAL):
        async with shared.listen(LOCAL) as second:
            pass
        with pytest.raises(RuntimeError, match="was released"):
            second.mount("/a", says("a"), title="A")


# Reload.


async def test_keep_served_keeps_released_paths_until_its_end(connect: Connect) -> None:
    shared = listeners()
    first = shared.listen(LOCAL)
    mounts = await first.__aenter__()
    mounts.mount("/a", says("old"), title="A")
    mounts.mount("/b", says("old"), title="B")
    client = await connect(mounts.port)
    with shared.keep_served():
        await first.__aexit__(None, None, None)
        assert await client.get("/a") == (200, "old")
        async with shared.listen(LOCAL) as later:
            assert later.port == mounts.port
            later.mount("/a", says("new"), title="A")
            assert await client.get("/a") == (200, "new")
            assert await client.get("/b") == (200, "old")
        assert await client.get("/a") == (200, "new")
        assert await (await connect(mounts.port)).get("/a") == (200, "new")
    assert await client.ended()
    assert not shared._listeners


async def test_a_path_mounted_within_keep_served_stays(connect: Connect) -> None:
    shared = listeners()
    first = shared.listen(LOCAL)
    (await first.__aenter__()).mount("/a", says("old"), title="A")
    with shared.keep_served(), shared.keep_served():
        await first.__aexit__(None, None, None)
        second = shared.listen(LOCAL)
        mounts = await second.__aenter__()
        mounts.mount("/a", says("new"), title="A")
    client = await connect(mounts.port)
    assert await client.get("/a") == (200, "new")
    await second.__aexit__(None, None, None)
    assert await client.ended()


async def test_the_end_of_an_old_lease_does_not_remove_a_newer_mount(connect: Connect) -> None:
    shared = listeners()
    older = shared.listen(LOCAL)
    mounts = await older.__aenter__()
    mounts.mount("/a", says("old"), title="A")
    hold = shared.keep_served()
    hold.__enter__()
    await older.__aexit__(None, None, None)
    async with shared.listen(LOCAL) as newer:
        newer.mount("/a", says("new"), title="A")
        hold.__exit__(None, None, None)
        assert await (await connect(newer.port)).get("/a") == (200, "new")


async def test_keep_served_releases_a_port_that_another_address_needs(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shared = listeners()
    everywhere = shared.listen(ListenAddress("", port))
    await everywhere.__aenter__()
    with shared.keep_served():
        await everywhere.__aexit__(None, None, None)
        async with shared.listen(ListenAddress("127.0.0.1", port)) as mounts:
            mounts.mount("/a", says("a"), title="A")
            assert await (await connect(port)).get("/a") == (200, "a")
    assert not shared._listeners


async def test_keep_served_ends_after_an_exception() -> None:
    shared = listeners()
    lease = shared.listen(LOCAL)
    await lease.__aenter__()

    async def fails() -> None:
        with shared.keep_served():
            await lease.__aexit__(None, None, None)
            raise PermanentError("no")

    with pytest.raises(PermanentError):
        await fails()
    assert not shared._listeners


# Responses.


async def test_the_index_and_health_pages_are_always_served(connect: Connect) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A <thing>")
        client = await connect(mounts.port)
        status, page = await client.get("/")
        assert status == 200
        assert '<a href="/a">/a</a> A &lt;thing&gt;' in page
        assert "node-&lt;1&gt;" in page
        assert "1.2.3" in page
        assert "src=" not in page
        assert await client.get("/healthz") == (200, "ok\n")
        assert await client.get("/health") == (200, "ok\n")
        assert await client.get("/readyz") == (503, "no readings yet\n")
        assert (await client.get("/nothing"))[0] == 404
        assert (await client.get("/a/"))[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_methods_other_than_get_and_head_get_status_405(
    method: str, connect: Connect
) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A")
        client = await connect(mounts.port)
        client.send(f"{method} /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        status, headers, _ = await client.answer()
        assert (status, headers["allow"]) == (405, "GET, HEAD")


async def test_head_has_the_headers_of_get(connect: Connect) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says("a" * 100_000), title="A")
        client = await connect(mounts.port)
        client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, _ = await client.answer(body=False)
        assert (status, headers["content-length"]) == (200, "100000")
        assert (await client.get("/a"))[1] == "a" * 100_000


async def test_a_handler_gets_the_request_and_its_response_is_sent(connect: Connect) -> None:
    seen: list[HttpRequest] = []

    async def handler(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse(b"body", "text/x", 201, {"X-Own": "1"}, tail=b" and tail")

    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", handler, title="A")
        client = await connect(mounts.port)
        client.send("GET /a?x=1&x=2&y= HTTP/1.1\r\nHost: h\r\nAccept: a\r\nACCEPT: b\r\n\r\n")
        status, headers, body = await client.answer()
    assert (status, body, headers["content-type"]) == (201, b"body and tail", "text/x")
    assert headers["x-own"] == "1"
    assert headers["server"] == "podgpu"
    (request,) = seen
    assert (request.method, request.path) == ("GET", "/a")
    assert dict(request.query) == {"x": "1", "y": ""}
    assert dict(request.headers) == {"host": "h", "accept": "a, b"}


async def test_a_handler_that_fails_does_not_affect_other_paths(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_: HttpRequest) -> HttpResponse:
        raise ValueError("secret")

    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/bad", fails, title="bad")
        mounts.mount("/good", says("good"), title="good")
        client = await connect(mounts.port)
        assert await client.get("/bad", "Accept: text/html") == (
            500,
            "/bad failed; see podgpu's log\n",
        )
        assert await client.get("/good") == (200, "good")
    assert "127.0.0.1:0/bad: the handler failed" in caplog.text
    assert "ValueError: secret" in caplog.text


async def test_a_health_check_that_raises_gets_status_500(connect: Connect) -> None:
    def fails() -> tuple[bool, str]:
        raise RuntimeError

    shared = ListenerRegistry(node="n", version="0", health=fails, ready=lambda: (True, "ok"))
    async with shared.listen(LOCAL) as mounts:
        client = await connect(mounts.port)
        assert (await client.get("/healthz"))[0] == 500
        assert (await client.get("/readyz"))[0] == 200


async def test_a_handler_that_takes_too_long_gets_status_503(connect: Connect) -> None:
    async def hangs(_: HttpRequest) -> HttpResponse:
        await asyncio.sleep(60)
        raise AssertionError

    async with listeners(handler_seconds=0.05).listen(LOCAL) as mounts:
        mounts.mount("/a", hangs, title="A")
        client = await connect(mounts.port)
        assert await client.get("/a") == (503, "/a took too long\n")
