"""The HTTP transport with real servers in this process."""

import asyncio
import gzip
import socket
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from sinks.otlp.transport.contract import USER_AGENT
from tests.sinks.otlp.transport.receivers import (
    GrpcReceiver,
    HttpReceiver,
    answers,
    names,
    never,
    record,
    status,
)
from tests.sinks.otlp.transport.relays import Relay, reset
from tests.sinks.otlp.transport.sending import pushing
from tests.support.web import certificate, pem

HTTP = "http/protobuf"


@pytest.mark.parametrize("size", [0, 200_000], ids=["in the loop", "in a thread"])
async def test_records_are_sent_as_one_message_in_order(size: int) -> None:
    async with HttpReceiver().serving() as receiver, pushing(receiver.url, HTTP) as push:
        assert await push.send([record(1), record(2, size=size), record(3)]) == Acked()
        assert await push.send([record(4)]) == Acked()
    assert [names(message) for message in receiver.messages] == [["m1", "m2", "m3"], ["m4"]]
    assert receiver.paths == ["/v1/metrics"] * 2
    assert len(set(receiver.peers)) == 1


@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_headers_are_sent_and_bodies_compressed_if_configured(compression: str) -> None:
    extra_headers = {"X-Scope-OrgID": "tenant"}
    async with (
        HttpReceiver().serving() as receiver,
        pushing(receiver.url, HTTP, headers=extra_headers, compression=compression) as push,
    ):
        assert await push.send([record(size=20_000)]) == Acked()
    [headers], [body] = receiver.headers, receiver.bodies
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["x-scope-orgid"] == "tenant"
    assert headers["user-agent"] == USER_AGENT
    assert headers["accept-encoding"] == "identity"
    assert headers.get("content-encoding") == ("gzip" if compression == "gzip" else None)
    assert int(headers["content-length"]) == len(body)
    assert (len(body) < 8_000) == (compression == "gzip")


async def test_o1_retry_after_of_the_receiver_is_returned() -> None:
    async with HttpReceiver().serving() as receiver, pushing(receiver.url, HTTP) as push:
        receiver.answer = answers(429, status(8, "slow down"), Retry_After="7")
        assert await push.send([record()]) == Retry(
            "http_429",
            f"{receiver.url}/v1/metrics: answered 429 Too Many Requests: slow down",
            7.0,
        )


@pytest.mark.parametrize("code", [400, 401, 404, 413, 500])
async def test_o3_a_refused_request_is_rejected_or_too_large(code: int) -> None:
    async with HttpReceiver().serving() as receiver, pushing(receiver.url, HTTP) as push:
        receiver.answer = answers(code, status(3, "no"))
        found: Outcome = await push.send([record()])
    assert isinstance(found, TooLarge if code == 413 else Rejected)
    assert "no" in found.message
    assert len(receiver.messages) == 1


async def test_o4_partial_success_is_returned() -> None:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 2
    async with HttpReceiver().serving() as receiver, pushing(receiver.url, HTTP) as push:
        receiver.answer = answers(200, answer.SerializeToString())
        found = await push.send([record(points=5)])
    assert found == Acked(2, f"{receiver.url}/v1/metrics: rejected 2 points")


def endless(piece: bytes, pause: float = 0.0, code: int = 200) -> Any:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=code)
        await response.prepare(request)
        while True:
            await response.write(piece)
            await asyncio.sleep(pause)

    return answer


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", [never, endless(b"x", 0.05)], ids=["no response", "one byte at a time"]
)
async def test_o5_a_slow_receiver_is_a_timeout(answer: Any) -> None:
    async with HttpReceiver().serving() as receiver:
        receiver.answer = answer
        async with pushing(receiver.url, HTTP, timeout="300ms") as push, asyncio.timeout(5):
            found = await push.send([record()])
            assert isinstance(found, Retry)
            assert found.reason == "timeout"
            assert "no complete response within 0.3 s" in found.message
            receiver.answer = answers(200)
            assert await push.send([record()]) == Acked()


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True], ids=["100 MB", "gzip bomb"])
@pytest.mark.parametrize(("code", "outcome"), [(200, Acked), (503, Retry), (400, Rejected)])
async def test_o5_a_response_that_is_too_large_is_cut_off(
    compressed: bool, code: int, outcome: type
) -> None:
    async with HttpReceiver().serving() as receiver:
        if compressed:
            bomb = gzip.compress(bytes(100_000_000), 1)
            receiver.answer = answers(code, bomb, Content_Encoding="gzip")
        else:
            receiver.answer = endless(b"x" * 65536, code=code)
        async with pushing(receiver.url, HTTP) as push, asyncio.timeout(10):
            found = await push.send([record()])
            assert isinstance(found, outcome)
            if code == 200:
                assert "sent a response of more than 4194304 bytes" in found.message
            receiver.answer = answers(200)
            assert await push.send([record()]) == Acked()


async def test_o6_a_connection_that_breaks_before_the_response_is_retried() -> None:
    async with (
        HttpReceiver().serving() as receiver,
        Relay(receiver.port).serving() as relay,
        pushing(f"http://127.0.0.1:{relay.port}", HTTP) as push,
    ):

        async def break_connections(_: web.BaseRequest) -> web.StreamResponse:
            for writer in list(relay.open):
                reset(writer)
            return web.Response()

        receiver.answer = break_connections
        found = await push.send([record(1, points=3)])
        assert isinstance(found, Retry)
        assert found.reason == "broken"
        receiver.answer = answers(200)
        assert await push.send([record(1, points=3)]) == Acked()
    first, second = receiver.bodies
    assert first == second


async def test_o8_an_unreachable_receiver_is_retried(unused_tcp_port: int) -> None:
    async with pushing(f"http://127.0.0.1:{unused_tcp_port}", HTTP) as push:
        found = await push.send([record()])
        assert isinstance(found, Retry)
        assert found.reason == "unreachable"
        assert "check that the server runs and its address is right" in found.message
        assert await push.send([record()]) == found
        async with HttpReceiver().serving(port=unused_tcp_port):
            assert await push.send([record()]) == Acked()


async def test_o8_an_unknown_host_name_is_retried() -> None:
    async with pushing("http://nowhere.invalid:4318", HTTP) as push:
        found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "unreachable"
    assert "nowhere.invalid" in found.message


async def test_o8_the_host_name_is_resolved_again_for_a_moved_server(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ""

    def resolve(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        assert host == "collector.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    port = unused_tcp_port
    async with pushing(f"http://collector.test:{port}", HTTP) as push:
        for address in ("127.0.0.2", "127.0.0.3", "127.0.0.2"):
            receiver = HttpReceiver()
            async with receiver.serving(address, port):
                assert await push.send([record()]) == Acked()
            assert len(receiver.messages) == 1
            assert isinstance(await push.send([record()]), Retry)


async def test_o8_a_receiver_on_ipv6_only() -> None:
    receiver = HttpReceiver()
    async with receiver.serving("::1"), pushing(f"http://[::1]:{receiver.port}", HTTP) as push:
        assert await push.send([record()]) == Acked()


@pytest.mark.slow
async def test_o8_a_connection_closed_by_the_server_is_replaced() -> None:
    async with (
        HttpReceiver().serving(keepalive=0.1) as receiver,
        pushing(receiver.url, HTTP) as push,
    ):
        assert await push.send([record(1)]) == Acked()
        await asyncio.sleep(0.4)
        assert await push.send([record(2)]) == Acked()
    assert len(set(receiver.peers)) == 2


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
async def test_o8_a_proxy_is_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        HttpReceiver().serving() as receiver,
        Relay(receiver.port, proxy=True).serving() as relay,
    ):
        monkeypatch.setenv(variable, f"http://user:p%40ss@127.0.0.1:{relay.port}")
        async with pushing("http://collector.test:4318", HTTP) as push:
            assert await push.send([record()]) == Acked()
        [head] = relay.heads
        assert head.startswith("POST http://collector.test:4318/v1/metrics HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in head
        # Loopback addresses use no proxy.
        async with pushing(receiver.url, HTTP) as push:
            assert await push.send([record()]) == Acked()
        assert len(relay.heads) == 1


async def test_o8_an_unreachable_proxy_is_named(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{unused_tcp_port}")
    async with pushing("http://collector.test:4318", HTTP) as push:
        found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "proxy"
    assert f"can't connect to the proxy http://127.0.0.1:{unused_tcp_port}: " in found.message
    assert "check http_proxy and no_proxy" in found.message


@pytest.mark.parametrize("value", ["http://[bad", "http://u:secret@h:x", "socks5://u:secret@h:1"])
async def test_o8_an_invalid_proxy_setting_is_retried(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", value)
    async with pushing("http://collector.test:4318", HTTP) as push:
        for _ in range(2):
            found = await push.send([record()])
            assert isinstance(found, Retry)
            assert found.reason == "proxy"
            assert "the variable http_proxy " in found.message
            assert "secret" not in found.message


async def test_o3_a_refusal_in_plain_text_is_shown() -> None:
    """As Prometheus rejects late samples."""
    async with (
        HttpReceiver().serving() as receiver,
        pushing(f"{receiver.url}/api/v1/otlp/v1/metrics", HTTP) as push,
    ):
        receiver.answer = answers(400, b"out of order sample\n", "text/plain")
        found = await push.send([record()])
    assert isinstance(found, Rejected)
    assert "400 Bad Request: out of order sample; set out_of_order_time_window" in found.message


@pytest.mark.parametrize("secure", [False, True])
async def test_a_port_for_grpc_is_reported_with_a_fix(secure: bool) -> None:
    leaf = pem(certificate("server", "127.0.0.1")) if secure else None
    async with (
        GrpcReceiver().serving(certificate=leaf) as receiver,
        pushing(receiver.url, HTTP) as push,
    ):
        found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "broken"
    assert ("write https" if secure else "a gRPC port does; set protocol: grpc") in found.message
    assert "Error" not in found.message
    assert "\\x" not in found.message


async def test_a_silent_half_open_connection_is_a_timeout() -> None:
    """A half-open connection: the other end is gone, without a RST or FIN."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with pushing(url, HTTP, timeout="200ms") as push, asyncio.timeout(5):
            found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "timeout"
