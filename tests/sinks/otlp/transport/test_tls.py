"""Certificates and tokens that are exchanged while podgpu runs, over both protocols (O7)."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipeline.base.clock import Clock
from pipeline.delivery.contract import Acked, Rejected, Retry
from sinks.otlp.options import TlsOptions
from sinks.otlp.push import OtlpPush
from tests.sinks.otlp.transport.receivers import (
    GrpcReceiver,
    HttpReceiver,
    answers,
    fails,
    record,
    says,
)
from tests.sinks.otlp.transport.relays import Relay
from tests.sinks.otlp.transport.sending import Files, TurnedClock, pushing
from tests.support.web import authority, certificate, pem

PROTOCOLS = ("grpc", "http/protobuf")
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.trust("server")
    return made


def receiving(
    protocol: str, leaf: trustme.LeafCert, clients: str = "", port: int = 0
) -> AbstractAsyncContextManager[Any]:
    if protocol == "grpc":
        trusted = authority(clients).cert_pem.bytes() if clients else None
        return GrpcReceiver().serving(f"127.0.0.1:{port}", certificate=pem(leaf), clients=trusted)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    leaf.configure_cert(context)
    if clients:
        authority(clients).configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return HttpReceiver().serving(port=port, context=context)


@asynccontextmanager
async def pushing_to(
    port: int, protocol: str, tls: TlsOptions, clock: Clock | None = None, **options: Any
) -> AsyncIterator[OtlpPush]:
    url = f"https://127.0.0.1:{port}"
    async with pushing(url, protocol, tls=tls, clock=clock, **options) as push:
        yield push


def again(found: object, reason: str, *said: str) -> None:
    """The records are kept, and it is clear what is wrong."""
    assert isinstance(found, Retry)
    assert found.reason in reason.split("|")
    for text in said:
        assert text in found.message
    assert "\n" not in found.message


async def test_o7_a_certificate_is_checked(protocol: str, files: Files) -> None:
    async with (
        receiving(protocol, certificate("server", "127.0.0.1")) as receiver,
        pushing_to(receiver.port, protocol, files.options()) as push,
    ):
        assert await push.send([record()]) == Acked()
        assert len(receiver.messages) == 1


async def test_o7_another_authority_then_the_right_one(protocol: str, files: Files) -> None:
    clock = TurnedClock()
    files.trust("other")
    async with (
        receiving(protocol, certificate("server", "127.0.0.1")) as receiver,
        pushing_to(receiver.port, protocol, files.options(), clock) as push,
    ):
        again(await push.send([record()]), "tls", "TLS failed", "ca_file")
        files.trust("server")
        clock.turn()
        assert await push.send([record()]) == Acked()
        assert len(receiver.messages) == 1


async def test_o7_the_wrong_name(protocol: str, files: Files) -> None:
    leaf = certificate("server", "collector.example")
    async with receiving(protocol, leaf) as receiver:
        async with pushing_to(receiver.port, protocol, files.options()) as push:
            again(
                await push.send([record()]), "tls", "TLS failed", "check the server's certificate"
            )
        options = files.options(name="collector.example")
        async with pushing_to(receiver.port, protocol, options) as push:
            assert await push.send([record()]) == Acked()


async def test_o7_an_expired_certificate(protocol: str, files: Files) -> None:
    leaf = authority("server").issue_cert("127.0.0.1", not_after=PAST, not_before=PAST)
    async with (
        receiving(protocol, leaf) as receiver,
        pushing_to(receiver.port, protocol, files.options()) as push,
    ):
        again(await push.send([record()]), "tls", "TLS failed")


async def test_o7_a_client_certificate_is_required(protocol: str, files: Files) -> None:
    clock = TurnedClock()
    leaf = certificate("server", "127.0.0.1")
    async with receiving(protocol, leaf, "clients") as receiver:
        async with pushing_to(receiver.port, protocol, files.options()) as push:
            again(await push.send([record()]), "tls|broken", "cert_file")
        files.show(certificate("other", "podgpu"))
        options = files.options(client=True)
        async with pushing_to(receiver.port, protocol, options, clock) as push:
            again(await push.send([record()]), "tls|broken", "cert_file")
            files.show(certificate("clients", "podgpu"))
            clock.turn()
            assert await push.send([record()]) == Acked()


async def test_o7_a_certificate_that_is_exchanged_makes_a_new_connection(
    protocol: str, files: Files
) -> None:
    clock = TurnedClock()
    leaf = certificate("server", "127.0.0.1")
    async with receiving(protocol, leaf, "clients") as receiver:
        files.show(certificate("clients", "podgpu"))
        options = files.options(client=True)
        async with (
            Relay(receiver.port).serving() as relay,
            pushing_to(relay.port, protocol, options, clock) as push,
        ):
            for _ in range(3):
                assert await push.send([record()]) == Acked()
                clock.turn()
            assert relay.taken == 1
            files.show(certificate("clients", "podgpu", serial=1))
            # Looked at once a second at most.
            clock.seconds -= 1
            assert await push.send([record()]) == Acked()
            assert relay.taken == 1
            clock.turn()
            assert await push.send([record()]) == Acked()
            assert relay.taken == 2


async def test_o7_broken_files_keep_the_records_and_name_the_file(
    protocol: str, files: Files
) -> None:
    clock = TurnedClock()
    leaf = certificate("server", "127.0.0.1")
    async with receiving(protocol, leaf, "clients") as receiver:
        good = certificate("clients", "podgpu")
        files.show(good)
        async with pushing_to(receiver.port, protocol, files.options(client=True), clock) as push:
            assert await push.send([record()]) == Acked()

            async def broken(*said: str) -> None:
                clock.turn()
                # What was good before is not used meanwhile.
                for _ in range(2):
                    again(await push.send([record()]), "credentials", *said)
                assert len(receiver.messages) == 1

            files.key.unlink()
            await broken(f"{files.key}: no such file; check that key_file is mounted and readable")
            files.key.write_bytes(pem(certificate("clients", "another"))[1])
            await broken(f"{files.key}: is not the key of the certificate")
            files.key.write_text("nothing")
            await broken(f"{files.key}: has no usable key in PEM format")
            files.show(good)
            files.cert.write_text("nothing")
            await broken(f"{files.cert}: has no usable certificate in PEM format")
            files.show(good)
            files.ca.write_text("nothing")
            await broken(f"{files.ca}: has no usable certificate in PEM format")
            files.trust("server")
            clock.turn()
            assert await push.send([record()]) == Acked()


@pytest.mark.parametrize("way", ["rename", "symlink"])
async def test_a_token_is_read_again(protocol: str, tmp_path: Path, way: str) -> None:
    clock, token = TurnedClock(), tmp_path / "token"

    def put(text: str) -> None:
        if way == "symlink":  # as the kubelet does it
            (tmp_path / f"..{text}").write_text(f"{text}\n")
            (tmp_path / "..new").symlink_to(f"..{text}")
            (tmp_path / "..new").replace(token)
        else:
            fresh = tmp_path / "fresh"
            fresh.write_text(f"{text}\n")
            fresh.replace(token)

    put("first")
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    async with (
        receiver.serving(),
        pushing(receiver.url, protocol, clock=clock, bearer_token_file=token) as push,
    ):
        assert await push.send([record()]) == Acked()
        put("second")
        assert await push.send([record()]) == Acked()
        clock.turn()
        assert await push.send([record()]) == Acked()
        token.write_text("two\nlines")
        clock.turn()
        again(await push.send([record()]), "credentials", f"{token}: must contain only the token")
    heads = receiver.metadata if protocol == "grpc" else receiver.headers
    found = [head["authorization"] for head in heads]
    assert found == ["Bearer first", "Bearer first", "Bearer second"]


def refusing(protocol: str, word: str) -> Any:
    if protocol == "grpc":
        return fails("UNAUTHENTICATED" if word == "login" else "PERMISSION_DENIED", "who?")
    return answers(401 if word == "login" else 403)


@pytest.mark.parametrize("word", ["login", "right"])
async def test_o3_a_refused_login_is_tried_once_more_with_files_read_again(
    protocol: str, word: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    accepted = says(b"") if protocol == "grpc" else answers(200)

    async def answer(context: Any) -> Any:
        if protocol == "grpc":
            shown = dict(context.invocation_metadata())["authorization"]
        else:
            shown = context.headers["Authorization"]
        return await (accepted if shown == "Bearer new" else refusing(protocol, word))(context)

    receiver.answer = answer
    async with (
        receiver.serving(),
        pushing(receiver.url, protocol, clock=TurnedClock(), bearer_token_file=token) as push,
    ):
        found = await push.send([record()])
        assert isinstance(found, Rejected)
        assert "check that the receiver accepts the headers, token or certificate" in found.message
        assert len(receiver.messages) == 2
        token.write_text("new")
        assert await push.send([record()]) == Acked()
        assert len(receiver.messages) == 4


async def test_o3_without_files_a_refused_login_is_final(protocol: str) -> None:
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    receiver.answer = refusing(protocol, "login")
    async with receiver.serving(), pushing(receiver.url, protocol) as push:
        assert isinstance(await push.send([record()]), Rejected)
    assert len(receiver.messages) == 1


@pytest.mark.parametrize("variable", ["https_proxy"])
async def test_o8_a_proxy_passes_tls_on(
    protocol: str, variable: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = certificate("server", "collector.test")
    async with (
        receiving(protocol, leaf) as receiver,
        Relay(receiver.port, proxy=True).serving() as relay,
    ):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{relay.port}")
        url = "https://collector.test:4317"
        async with pushing(url, protocol, tls=files.options()) as push:
            assert await push.send([record()]) == Acked()
            assert relay.heads[0].startswith("CONNECT collector.test:4317 HTTP/1.1\r\n")
        relay.refuse = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        async with pushing(url, protocol, tls=files.options()) as push:
            found = await push.send([record()])
        assert isinstance(found, Retry)


async def test_a_receiver_without_tls(protocol: str, files: Files) -> None:
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    async with (
        receiver.serving(),
        pushing_to(receiver.port, protocol, files.options()) as push,
    ):
        again(await push.send([record()]), "tls", "TLS failed")


async def test_o7_a_client_certificate_is_required_after_the_handshake(files: Files) -> None:
    """TLS 1.3: the client is done before the server has seen what it shows, as with those in Go."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    certificate("server", "127.0.0.1").configure_cert(context)
    authority("clients").configure_trust(context)

    async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server, pushing_to(port, "grpc", files.options()) as push:
        again(await push.send([record()]), "tls", "TLS failed", "check cert_file")


async def test_a_receiver_with_tls_that_speaks_no_http2(files: Files) -> None:
    async with (
        receiving("http/protobuf", certificate("server", "127.0.0.1")) as receiver,
        pushing_to(receiver.port, "grpc", files.options()) as push,
    ):
        again(await push.send([record()]), "tls", "set protocol: http/protobuf")


async def test_o7_a_file_that_a_variable_names_is_reported_by_the_variable(
    protocol: str, tmp_path: Path
) -> None:
    lost = tmp_path / "lost.pem"
    env = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(lost)}
    async with pushing("https://127.0.0.1:1", protocol, environ=env) as push:
        again(
            await push.send([record()]),
            "credentials",
            f"{lost}: no such file; check that the file of OTEL_EXPORTER_OTLP_CERTIFICATE is",
        )
