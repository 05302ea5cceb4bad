"""Tests of POST requests to real servers: responses, limits, errors, TLS and proxies."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipeline.net.http_post import Poster, PostError
from pipeline.net.pem import client_context
from tests.support.pages import Answer, PageServer, authority, hangs, says, streams

MOST = 1000


@asynccontextmanager
async def posting(url: str, **options: Any) -> AsyncIterator[Poster]:
    poster = Poster(url, **{"timeout": 5, "most": MOST, **options})
    try:
        yield poster
    finally:
        await poster.close()


def packed(form: str, data: bytes) -> Answer:
    return says(data, "200 OK", f"Content-Encoding: {form}")


async def test_a_request_is_sent_and_its_response_returned() -> None:
    answer = says("hello", "202 Accepted", "X-A: 1", "X-a: 2")
    async with PageServer(answer).serving() as server, posting(server.url) as poster:
        response = await poster.post(b"body", {"User-Agent": "me/1", "Content-Type": "a/b"})
    assert (response.status, response.body, response.fault) == (202, b"hello", "")
    assert response.headers["x-a"] == "1"
    [head] = server.heads
    assert head.startswith("POST /metrics HTTP/1.1\r\n")
    for line in (
        "Content-Length: 4",
        "Content-Type: a/b",
        "User-Agent: me/1",
        "Accept-Encoding: identity",
    ):
        assert f"{line}\r\n" in head


@pytest.mark.parametrize("code", ["204 No Content", "400 Bad Request", "503 Busy", "302 Found"])
async def test_any_status_is_returned_as_a_response(code: str) -> None:
    server = PageServer(says("", code, "Location: http://127.0.0.1:1/"))
    async with server.serving(), posting(server.url) as poster:
        assert (await poster.post(b"", {})).status == int(code[:3])
    assert len(server.heads) == 1


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("gzip", gzip.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")),
        ("identity", b"hello"),
        ("GZIP", gzip.compress(b"hello")),
    ],
    ids=["gzip", "deflate", "identity", "capitals"],
)
async def test_a_compressed_body_is_decompressed_although_not_requested(
    form: str, data: bytes
) -> None:
    async with PageServer(packed(form, data)).serving() as server, posting(server.url) as poster:
        assert (await poster.post(b"", {})).body == b"hello"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        pytest.param(says("x" * (MOST + 1)), "more than 1000 bytes", id="large"),
        pytest.param(streams(b"x" * 600), "more than 1000 bytes", id="endless"),
        pytest.param(packed("gzip", gzip.compress(bytes(10**7))), "more than 1000", id="bomb"),
        pytest.param(
            packed("gzip", gzip.compress(gzip.compress(bytes(10**7)))), "", id="bomb packed twice"
        ),
        pytest.param(packed("gzip", b"nothing"), "can't be decompressed", id="no gzip"),
        pytest.param(packed("br", b"x"), "encoding br, which podgpu did not request", id="br"),
    ],
)
async def test_o5_a_response_with_an_unusable_body_still_has_its_status(
    answer: Answer, fault: str
) -> None:
    async with (
        PageServer(answer).serving() as server,
        posting(server.url, most=MOST if fault else 12_000) as poster,
    ):
        response = await poster.post(b"", {})
        assert response.status == 200
        assert (fault in response.fault) if fault else response.fault == ""
        assert len(response.body) <= 12_000
        server.answer = says("fine")
        assert (await poster.post(b"", {})).body == b"fine"


async def cut_off(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    await writer.drain()
    writer.close()


async def not_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (hangs, "timeout"),
        (says("abc", length=50), "timeout"),
        (cut_off, "broken"),
        (not_http, "broken"),
        (says("", "200 OK", "x" * 70_000), "broken"),
    ],
)
async def test_a_missing_response_is_an_error_with_its_reason(answer: Answer, reason: str) -> None:
    async with (
        PageServer(answer).serving() as server,
        posting(f"{server.url}?key=secret", timeout=0.3) as poster,
    ):
        with pytest.raises(PostError) as caught:
            await poster.post(b"body", {})
        assert caught.value.reason == reason
        assert str(caught.value).startswith(f"{server.url}: ")
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)
        server.answer = says("fine")
        assert (await poster.post(b"", {})).body == b"fine"


async def test_an_unreachable_server_is_an_error(unused_tcp_port: int) -> None:
    async with posting(f"http://127.0.0.1:{unused_tcp_port}/") as poster:
        with pytest.raises(PostError, match="check that the server runs") as caught:
            await poster.post(b"", {})
    assert caught.value.reason == "unreachable"


async def test_several_requests_use_one_connection() -> None:
    connections = 0

    class Counting(PageServer):
        async def _serve(self, *args: Any) -> None:
            nonlocal connections
            connections += 1
            await super()._serve(*args)

    async def accept(writer: asyncio.StreamWriter) -> None:
        await says("fine")(writer)

    async with Counting(accept).serving() as server, posting(server.url) as poster:
        for _ in range(5):
            await poster.post(b"", {})
    assert connections == 1


async def test_server_name_sets_the_name_expected_in_the_certificate() -> None:
    context = await asyncio.to_thread(client_context, authority().cert_pem.bytes(), None, None)
    async with PageServer(says("fine"), secure=True).serving() as server:
        async with posting(server.url, context=context) as poster:
            assert (await poster.post(b"", {})).status == 200
        async with posting(server.url, context=context, server_name="collector") as poster:
            with pytest.raises(PostError, match="TLS failed") as caught:
                await poster.post(b"", {})
            assert caught.value.reason == "tls"
        async with posting(
            server.url.replace("127.0.0.1", "localhost"), context=context, server_name="127.0.0.1"
        ) as poster:
            assert (await poster.post(b"", {})).status == 200


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("http://[bad", "the variable all_proxy is not a proxy address: write for example"),
        ("socks5://127.0.0.1:1", "the variable all_proxy sets a proxy of the kind socks5"),
        ("http://proxy.invalid:3128", "can't connect to the proxy http://proxy.invalid:3128: "),
        ("http://127.0.0.1:1", "can't connect to the proxy http://127.0.0.1:1: "),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_unusable_proxy_is_an_error_that_names_the_variable(
    scheme: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", value)
    async with posting(f"{scheme}://collector.test/a?key=secret") as poster:
        with pytest.raises(PostError) as caught:
            await poster.post(b"", {})
    assert caught.value.reason == "proxy"
    assert str(caught.value).startswith(f"{scheme}://collector.test/a: {message}")
    assert "all_proxy" in str(caught.value)


@pytest.mark.slow
async def test_a_proxy_that_does_not_answer_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with PageServer(hangs).serving() as server:
        monkeypatch.setenv("http_proxy", server.url)
        async with posting("http://collector.test/", timeout=0.3) as poster:
            with pytest.raises(PostError, match="through the proxy in http_proxy") as caught:
                await poster.post(b"", {})
    assert caught.value.reason == "timeout"


async def http2(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64")
    await writer.drain()
    writer.close()


async def test_a_server_that_speaks_only_http2_is_reported_as_a_grpc_port() -> None:
    async with PageServer(http2).serving() as server, posting(server.url) as poster:
        with pytest.raises(PostError, match="as a gRPC port does; set protocol: grpc") as caught:
            await poster.post(b"", {})
    assert caught.value.reason == "broken"
