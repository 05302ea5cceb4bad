"""The gRPC transport with real servers in this process."""

import asyncio
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from pipeline.delivery.contract import Acked, Rejected, Retry, TooLarge
from sinks.otlp.transport.contract import USER_AGENT
from sinks.otlp.transport.grpc_transport import grpc_outcome
from tests.sinks.otlp.transport.receivers import (
    GrpcReceiver,
    HttpReceiver,
    fails,
    names,
    never,
    record,
    responds,
    status,
)
from tests.sinks.otlp.transport.relays import Relay, reset
from tests.sinks.otlp.transport.sending import pushing
from tests.support.web import certificate, pem


async def test_records_are_sent_as_one_message_in_order() -> None:
    async with GrpcReceiver().serving() as receiver, pushing(receiver.url) as push:
        assert await push.send([record(1), record(2), record(3)]) == Acked()
        assert await push.send([record(4)]) == Acked()
    assert [names(message) for message in receiver.messages] == [["m1", "m2", "m3"], ["m4"]]
    # One connection for both.
    assert len(set(receiver.peers)) == 1


async def test_headers_and_user_agent_are_sent() -> None:
    headers = {"X-Scope-OrgID": "tenant", "authorization": "Basic x"}
    async with GrpcReceiver().serving() as receiver, pushing(receiver.url, headers=headers) as push:
        await push.send([record()])
    [metadata] = receiver.metadata
    assert metadata["x-scope-orgid"] == "tenant"
    assert metadata["authorization"] == "Basic x"
    assert metadata["user-agent"].startswith(f"{USER_AGENT} grpc-python-asyncio/")
    # It does not claim to be an exporter of the SDK.
    assert re.fullmatch(r"podgpu/[\w.+-]+ \(OTLP exporter; Python\)", USER_AGENT)


@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_messages_are_compressed_if_configured(compression: str) -> None:
    """A relay records the bytes on the wire."""
    async with (
        GrpcReceiver().serving() as receiver,
        Relay(receiver.port).serving() as relay,
        pushing(f"http://127.0.0.1:{relay.port}", compression=compression) as push,
    ):
        assert await push.send([record(size=20_000)]) == Acked()
        assert names(receiver.messages[0]) == ["m0"]
        assert (len(relay.seen) < 8_000) == (compression == "gzip")


async def test_o2_errors_and_delays_of_the_receiver_are_returned() -> None:
    async with GrpcReceiver().serving() as receiver, pushing(receiver.url) as push:
        receiver.answer = fails("UNAVAILABLE", "memory limit")
        assert await push.send([record()]) == Retry(
            "unavailable", f"{receiver.url}: answered UNAVAILABLE: memory limit", None
        )
        receiver.answer = fails("UNAVAILABLE", "memory limit", status(14, "memory limit", 1.5))
        found = await push.send([record()])
        assert isinstance(found, Retry)
        assert found.after == 1.5
        receiver.answer = fails("RESOURCE_EXHAUSTED", "quota", status(8, "quota", 2))
        found = await push.send([record()])
        assert (found.reason, found.after) == ("resource_exhausted", 2)  # type: ignore[union-attr]
        receiver.answer = fails("RESOURCE_EXHAUSTED", "quota")
        assert isinstance(await push.send([record()]), Rejected)
        receiver.answer = fails("INVALID_ARGUMENT", "bad")
        assert isinstance(await push.send([record()]), Rejected)
        receiver.answer = responds(b"")
        assert await push.send([record()]) == Acked()


CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
async def test_o2_every_status_code_is_returned(code: grpc.StatusCode) -> None:
    async with GrpcReceiver().serving() as receiver, pushing(receiver.url) as push:
        receiver.answer = fails(code.name, "words", status(code.value[0], "words", 2.0))
        found = await push.send([record()])
        assert found == grpc_outcome(
            receiver.url,
            code.name,
            "words",
            status=status(code.value[0], "words", 2.0),
            timeout=5,
        )
        receiver.answer = responds(b"")
        assert await push.send([record()]) == Acked()


async def test_o4_partial_success_is_returned() -> None:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 2
    answer.partial_success.error_message = "too old"
    async with GrpcReceiver().serving() as receiver, pushing(receiver.url) as push:
        receiver.answer = responds(answer.SerializeToString())
        found = await push.send([record(points=5)])
    assert found == Acked(2, f"{receiver.url}: rejected 2 points: too old")


async def test_o5_a_receiver_that_never_responds_is_a_timeout() -> None:
    async with GrpcReceiver().serving() as receiver:
        receiver.answer = never
        async with pushing(receiver.url, timeout="200ms") as push, asyncio.timeout(5):
            found = await push.send([record()])
            assert isinstance(found, Retry)
            assert found.reason == "timeout"
            assert "no response within 0.2 s" in found.message
            receiver.answer = responds(b"")
            assert await push.send([record()]) == Acked()
    # The connection was not used again after the timeout.
    assert len(set(receiver.peers)) == 2


async def test_o5_a_silent_connection_is_a_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with pushing(url, timeout="200ms") as push, asyncio.timeout(5):
            found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason in ("timeout", "unreachable")


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ((), Acked),
        # 8 MB compressed to about 8 kB, which the library does not decompress. Its message is
        # the same as for a request that the server does not decompress, so podgpu assumes that.
        ((("grpc.default_compression_algorithm", 2),), TooLarge),
    ],
)
async def test_o5_a_response_that_is_too_large_is_handled(options: Any, outcome: type) -> None:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.error_message = "x" * 8_000_000
    large = answer.SerializeToString()
    async with GrpcReceiver().serving(options=options) as receiver:
        receiver.answer = responds(large)
        async with pushing(receiver.url) as push, asyncio.timeout(10):
            assert isinstance(await push.send([record()]), outcome)
            receiver.answer = responds(b"")
            assert await push.send([record()]) == Acked()


async def test_o8_an_unreachable_receiver_is_retried(unused_tcp_port: int) -> None:
    async with pushing(f"http://127.0.0.1:{unused_tcp_port}") as push:
        found = await push.send([record()])
        assert isinstance(found, Retry)
        assert found.reason == "unreachable"
        assert "refused" in found.message
        assert "check that the receiver runs and its address is right" in found.message
        # The same fault has the same message, and a new server is used immediately.
        assert await push.send([record()]) == found
        async with GrpcReceiver().serving(f"127.0.0.1:{unused_tcp_port}"):
            assert await push.send([record()]) == Acked()


async def test_o8_an_unknown_host_name_is_retried() -> None:
    async with pushing("http://nowhere.invalid:4317") as push:
        found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "unreachable"
    assert "nowhere.invalid" in found.message


async def test_o8_the_host_name_is_resolved_again_for_a_moved_server(
    unused_tcp_port: int,
) -> None:
    """localhost has two addresses; the server moves from one to the other."""
    port = unused_tcp_port
    async with pushing(f"http://localhost:{port}") as push:
        for address in ("127.0.0.1", "[::1]", "127.0.0.1"):
            receiver = GrpcReceiver()
            async with receiver.serving(f"{address}:{port}"):
                async with asyncio.timeout(10):
                    while not isinstance(await push.send([record()]), Acked):
                        await asyncio.sleep(0.05)
            assert len(receiver.messages) == 1
            assert isinstance(await push.send([record()]), Retry)


async def test_o8_a_receiver_on_ipv6_only() -> None:
    receiver = GrpcReceiver()
    async with receiver.serving("[::1]:0"), pushing(f"http://[::1]:{receiver.port}") as push:
        assert await push.send([record()]) == Acked()


async def test_o8_a_receiver_on_a_unix_socket(tmp_path: Path) -> None:
    receiver = GrpcReceiver()
    endpoint = f"unix:{tmp_path / 'otel.sock'}"
    async with receiver.serving(endpoint), pushing(endpoint) as push:
        assert await push.send([record()]) == Acked()


async def test_o8_a_connection_dropped_by_a_load_balancer_is_replaced() -> None:
    async with (
        GrpcReceiver().serving() as receiver,
        Relay(receiver.port).serving() as relay,
        pushing(f"http://127.0.0.1:{relay.port}") as push,
    ):
        assert await push.send([record(1)]) == Acked()
        for writer in relay.open:
            writer.transport.abort()
        await asyncio.sleep(0.05)
        found = await push.send([record(2)])
        if isinstance(found, Retry):
            found = await push.send([record(2)])
        assert found == Acked()
    assert [names(message) for message in receiver.messages] == [["m1"], ["m2"]]


async def test_o6_a_connection_that_breaks_before_the_response_is_retried() -> None:
    async with (
        GrpcReceiver().serving() as receiver,
        Relay(receiver.port).serving() as relay,
        pushing(f"http://127.0.0.1:{relay.port}") as push,
    ):

        async def break_connections(_: Any) -> bytes:
            for writer in relay.open:
                reset(writer)
            await asyncio.sleep(60)
            return b""

        receiver.answer = break_connections
        found = await push.send([record(1, points=3)])
        assert isinstance(found, Retry)
        assert found.reason == "unavailable"
        receiver.answer = responds(b"")
        assert await push.send([record(1, points=3)]) == Acked()
    first, second = receiver.messages
    assert first == second


@pytest.mark.slow
async def test_o9_a_message_over_the_limit_of_the_server_is_too_large() -> None:
    """4 MiB is the default of a Collector's receiver and of most servers."""
    async with GrpcReceiver().serving() as receiver, pushing(receiver.url) as push:
        records = [record(at, size=1 << 20) for at in range(5)]
        found = await push.send(records)
        assert isinstance(found, TooLarge)
        assert "larger than max" in found.message
        assert await push.send(records[:3]) == Acked()


@pytest.mark.slow
async def test_o9_a_message_over_the_limit_of_the_client_is_too_large() -> None:
    unlimited = (("grpc.max_receive_message_length", -1),)
    async with (
        GrpcReceiver().serving(options=unlimited) as receiver,
        pushing(receiver.url, timeout="10s", compression="none") as push,
    ):
        large = record(size=1 << 20)
        assert isinstance(await push.send([large] * 65), TooLarge)
        assert receiver.messages == []
        assert await push.send([large] * 63) == Acked()


async def test_a_port_for_http_is_reported_with_a_fix() -> None:
    async def http_1_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(http_1_server, "127.0.0.1", 0)
    async with server, pushing(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as push:
        found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "unreachable"
    assert "this is not a gRPC port: set protocol: http/protobuf" in found.message


@pytest.mark.parametrize("http", [False, True])
async def test_a_port_with_tls_is_reported_with_a_fix(http: bool) -> None:
    leaf = certificate("server", "127.0.0.1")
    receiver: Any = HttpReceiver() if http else GrpcReceiver()
    if http:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        leaf.configure_cert(context)
        serving = receiver.serving(context=context)
    else:
        serving = receiver.serving(certificate=pem(leaf))
    async with serving, pushing(receiver.url) as push:
        found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "unreachable"
    assert "if the receiver uses TLS, use https" in found.message


async def test_o8_an_unreachable_proxy_is_named(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_tcp_port}")
    async with pushing("http://collector.test:4317") as push:
        found = await push.send([record()])
    assert isinstance(found, Retry)
    assert found.reason == "unreachable"
    assert "check the proxy in http_proxy," in found.message


# Imports the modules once, and then forks a process for each case: the gRPC library aborts its own.
STARVED = """
import asyncio, os, resource, sys
from tests.sinks.otlp.transport.receivers import GrpcReceiver, record
from tests.sinks.otlp.transport.sending import pushing

async def main(when, remaining):
    found = []
    async with pushing("http://127.0.0.1:1", timeout="1s") as push:
        if when == "later":
            found.append((await push.send([record()])).reason)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for _ in range(remaining):
            os.close(held.pop())
        starved = await push.send([record()])
        found.append(f"{starved.reason} {starved.message}")
        while held:
            os.close(held.pop())
        found.append((await push.send([record()])).reason)
    print(when, remaining, found, flush=True)

for when in ("at first", "later"):
    for remaining in (0, 1, 4, 8):
        child = os.fork()
        if not child:
            asyncio.run(main(when, remaining))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, (when, remaining)
"""


@pytest.mark.slow
async def test_without_file_descriptors_the_records_wait() -> None:
    """Otherwise the gRPC library would abort the process."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", STARVED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    starved = (
        "descriptors http://127.0.0.1:1: can't connect: Too many open files; "
        "allow podgpu more open files (ulimit -n)"
    )
    assert done.stdout.splitlines() == [
        f"{when} {remaining} {[*before, starved, 'unreachable']}"
        for when, before in (("at first", []), ("later", ["unreachable"]))
        for remaining in (0, 1, 4, 8)
    ]
