"""Certificates and tokens that are replaced while podgpu runs, over both protocols (O7)."""

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
    responds,
)
from tests.sinks.otlp.transport.relays import Relay
from tests.sinks.otlp.transport.sending import CertificateFiles, ManualClock, pushing
from tests.support.web import authority, certificate, pem

PROTOCOLS = ("grpc", "http/protobuf")
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    created = CertificateFiles(tmp_path)
    created.trust("server")
    return created


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


def assert_retry(found: object, reason: str, *expected: str) -> None:
    """Assert that the outcome is a retry with this reason and message."""
    assert isinstance(found, Retry)
    assert found.reason in reason.split("|")
    for text in expected:
        assert text in found.message
    assert "\n" not in found.message


async def test_o7_a_valid_server_certificate_is_accepted(
    protocol: str, files: CertificateFiles
) -> None:
    async with (
        receiving(protocol, certificate("server", "127.0.0.1")) as receiver,
        pushing_to(receiver.port, protocol, files.options()) as push,
    ):
        assert await push.send([record()]) == Acked()
        assert len(receiver.messages) == 1


async def test_o7_a_replaced_ca_file_is_used(protocol: str, files: CertificateFiles) -> None:
    clock = ManualClock()
    files.trust("other")
    async with (
        receiving(protocol, certificate("server", "127.0.0.1")) as receiver,
        pushing_to(receiver.port, protocol, files.options(), clock) as push,
    ):
        assert_retry(await push.send([record()]), "tls", "TLS failed", "ca_file")
        files.trust("server")
        clock.advance()
        assert await push.send([record()]) == Acked()
        assert len(receiver.messages) == 1


async def test_o7_a_certificate_with_another_name_is_refused(
    protocol: str, files: CertificateFiles
) -> None:
    leaf = certificate("server", "collector.example")
    async with receiving(protocol, leaf) as receiver:
        async with pushing_to(receiver.port, protocol, files.options()) as push:
            assert_retry(
                await push.send([record()]), "tls", "TLS failed", "check the server's certificate"
            )
        options = files.options(name="collector.example")
        async with pushing_to(receiver.port, protocol, options) as push:
            assert await push.send([record()]) == Acked()


async def test_o7_an_expired_certificate_is_refused(protocol: str, files: CertificateFiles) -> None:
    leaf = authority("server").issue_cert("127.0.0.1", not_after=PAST, not_before=PAST)
    async with (
        receiving(protocol, leaf) as receiver,
        pushing_to(receiver.port, protocol, files.options()) as push,
    ):
        assert_retry(await push.send([record()]), "tls", "TLS failed")


async def test_o7_a_missing_or_unknown_client_certificate_is_reported(
    protocol: str, files: CertificateFiles
) -> None:
    clock = ManualClock()
    leaf = certificate("server", "127.0.0.1")
    async with receiving(protocol, leaf, "clients") as receiver:
        async with pushing_to(receiver.port, protocol, files.options()) as push:
            assert_retry(await push.send([record()]), "tls|broken", "cert_file")
        files.write_certificate(certificate("other", "podgpu"))
        options = files.options(client=True)
        async with pushing_to(receiver.port, protocol, options, clock) as push:
            assert_retry(await push.send([record()]), "tls|broken", "cert_file")
            files.write_certificate(certificate("clients", "podgpu"))
            clock.advance()
            assert await push.send([record()]) == Acked()


async def test_o7_a_replaced_client_certificate_makes_a_new_connection(
    protocol: str, files: CertificateFiles
) -> None:
    clock = ManualClock()
    leaf = certificate("server", "127.0.0.1")
    async with receiving(protocol, leaf, "clients") as receiver:
        files.write_certificate(certificate("clients", "podgpu"))
        options = files.options(client=True)
        async with (
            Relay(receiver.port).serving() as relay,
            pushing_to(relay.port, protocol, options, clock) as push,
        ):
            for _ in range(3):
                assert await push.send([record()]) == Acked()
                clock.advance()
            assert relay.accepted == 1
            files.write_certificate(certificate("clients", "podgpu", serial=1))
            # Files are checked at most once per second.
            clock.seconds -= 1
            assert await push.send([record()]) == Acked()
            assert relay.accepted == 1
            clock.advance()
            assert await push.send([record()]) == Acked()
            assert relay.accepted == 2


async def test_o7_invalid_files_are_named_and_the_records_wait(
    protocol: str, files: CertificateFiles
) -> None:
    clock = ManualClock()
    leaf = certificate("server", "127.0.0.1")
    async with receiving(protocol, leaf, "clients") as receiver:
        good = certificate("clients", "podgpu")
        files.write_certificate(good)
        async with pushing_to(receiver.port, protocol, files.options(client=True), clock) as push:
            assert await push.send([record()]) == Acked()

            async def assert_broken(*expected: str) -> None:
                clock.advance()
                # The previous valid credentials are not used meanwhile.
                for _ in range(2):
                    assert_retry(await push.send([record()]), "credentials", *expected)
                assert len(receiver.messages) == 1

            files.key.unlink()
            await assert_broken(
                f"{files.key}: no such file; check that key_file is mounted and readable"
            )
            files.key.write_bytes(pem(certificate("clients", "another"))[1])
            await assert_broken(f"{files.key}: is not the key of the certificate")
            files.key.write_text("nothing")
            await assert_broken(f"{files.key}: has no usable key in PEM format")
            files.write_certificate(good)
            files.cert.write_text("nothing")
            await assert_broken(f"{files.cert}: has no usable certificate in PEM format")
            files.write_certificate(good)
            files.ca.write_text("nothing")
            await assert_broken(f"{files.ca}: has no usable certificate in PEM format")
            files.trust("server")
            clock.advance()
            assert await push.send([record()]) == Acked()


@pytest.mark.parametrize("method", ["rename", "symlink"])
async def test_a_replaced_token_is_read_again(protocol: str, tmp_path: Path, method: str) -> None:
    clock, token = ManualClock(), tmp_path / "token"

    def put(text: str) -> None:
        if method == "symlink":  # as the kubelet does
            (tmp_path / f"..{text}").write_text(f"{text}\n")
            (tmp_path / "..new").symlink_to(f"..{text}")
            (tmp_path / "..new").replace(token)
        else:
            new_file = tmp_path / "new"
            new_file.write_text(f"{text}\n")
            new_file.replace(token)

    put("first")
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    async with (
        receiver.serving(),
        pushing(receiver.url, protocol, clock=clock, bearer_token_file=token) as push,
    ):
        assert await push.send([record()]) == Acked()
        put("second")
        assert await push.send([record()]) == Acked()
        clock.advance()
        assert await push.send([record()]) == Acked()
        token.write_text("two\nlines")
        clock.advance()
        assert_retry(
            await push.send([record()]), "credentials", f"{token}: must contain only the token"
        )
    heads = receiver.metadata if protocol == "grpc" else receiver.headers
    found = [head["authorization"] for head in heads]
    assert found == ["Bearer first", "Bearer first", "Bearer second"]


def refusing(protocol: str, refusal: str) -> Any:
    if protocol == "grpc":
        return fails("UNAUTHENTICATED" if refusal == "login" else "PERMISSION_DENIED", "who?")
    return answers(401 if refusal == "login" else 403)


@pytest.mark.parametrize("refusal", ["login", "permission"])
async def test_o3_a_refused_login_is_retried_once_with_reloaded_files(
    protocol: str, refusal: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    accepted = responds(b"") if protocol == "grpc" else answers(200)

    async def answer(context: Any) -> Any:
        if protocol == "grpc":
            authorization = dict(context.invocation_metadata())["authorization"]
        else:
            authorization = context.headers["Authorization"]
        return await (accepted if authorization == "Bearer new" else refusing(protocol, refusal))(
            context
        )

    receiver.answer = answer
    async with (
        receiver.serving(),
        pushing(receiver.url, protocol, clock=ManualClock(), bearer_token_file=token) as push,
    ):
        found = await push.send([record()])
        assert isinstance(found, Rejected)
        assert "check that the receiver accepts the headers, token or certificate" in found.message
        assert len(receiver.messages) == 2
        token.write_text("new")
        assert await push.send([record()]) == Acked()
        assert len(receiver.messages) == 4


async def test_o3_without_files_a_refused_login_is_not_retried(protocol: str) -> None:
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    receiver.answer = refusing(protocol, "login")
    async with receiver.serving(), pushing(receiver.url, protocol) as push:
        assert isinstance(await push.send([record()]), Rejected)
    assert len(receiver.messages) == 1


@pytest.mark.parametrize("variable", ["https_proxy"])
async def test_o8_tls_goes_through_a_proxy(
    protocol: str, variable: str, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
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


async def test_a_receiver_without_tls_is_reported(protocol: str, files: CertificateFiles) -> None:
    receiver: Any = GrpcReceiver() if protocol == "grpc" else HttpReceiver()
    async with (
        receiver.serving(),
        pushing_to(receiver.port, protocol, files.options()) as push,
    ):
        assert_retry(await push.send([record()]), "tls", "TLS failed")


async def test_o7_a_client_certificate_refused_after_the_handshake(files: CertificateFiles) -> None:
    """In TLS 1.3 the client finishes before the server checks its certificate, as Go servers do."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    certificate("server", "127.0.0.1").configure_cert(context)
    authority("clients").configure_trust(context)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server, pushing_to(port, "grpc", files.options()) as push:
        assert_retry(await push.send([record()]), "tls", "TLS failed", "check cert_file")


async def test_a_receiver_with_tls_but_without_http2_is_reported(files: CertificateFiles) -> None:
    async with (
        receiving("http/protobuf", certificate("server", "127.0.0.1")) as receiver,
        pushing_to(receiver.port, "grpc", files.options()) as push,
    ):
        assert_retry(await push.send([record()]), "tls", "set protocol: http/protobuf")


async def test_o7_an_error_names_the_environment_variable_of_the_file(
    protocol: str, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.pem"
    env = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(missing)}
    async with pushing("https://127.0.0.1:1", protocol, environ=env) as push:
        assert_retry(
            await push.send([record()]),
            "credentials",
            f"{missing}: no such file; check that the file of OTEL_EXPORTER_OTLP_CERTIFICATE is",
        )
