"""The doctor's check `otlp.receiver`, with each fault provoked on real receivers."""

from pathlib import Path
from typing import Any

import pytest

from config.value_types import Duration
from pipeline.component.findings import Finding, Verdict
from sinks.otlp.doctor import examine
from sinks.otlp.options import Options
from tests.podgpu.doctor.support import context, free_port, is_bad, of
from tests.sinks.otlp.transport.receivers import GrpcReceiver, HttpReceiver, answers, fails, never

PROTOCOLS = ["grpc", "http/protobuf"]


def options(url: str, protocol: Any, **more: Any) -> Options:
    endpoint = url if protocol == "grpc" else f"{url}/v1/metrics"
    return Options(endpoint=endpoint, protocol=protocol, **more)


async def check_receiver(folder: Path, options_: Options, **environ: str) -> Finding:
    return of(await examine(options_, context(folder / "ctx", environ=environ)), "otlp.receiver")


def receiver(protocol: str) -> Any:
    return GrpcReceiver() if protocol == "grpc" else HttpReceiver()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_accepted_empty_request_is_ok(tmp_path: Path, protocol: str) -> None:
    async with receiver(protocol).serving() as server:
        finding = await check_receiver(tmp_path, options(server.url, protocol))
    assert finding.verdict is Verdict.OK, finding
    assert server.messages == [b""]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_port_without_a_listener_is_a_failure(tmp_path: Path, protocol: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    finding = await check_receiver(tmp_path, options(url, protocol))
    is_bad(finding, "failure", "127.0.0.1", "check that the collector runs")


REFUSALS = [
    ("grpc", fails("UNAUTHENTICATED", "no token"), "no token", "bearer_token_file"),
    ("grpc", fails("PERMISSION_DENIED", "not you"), "not you", "allow podgpu in the receiver"),
    ("grpc", fails("UNIMPLEMENTED", "no metrics"), "no metrics", "has a receiver for OTLP"),
    ("http/protobuf", answers(401), "401", "bearer_token_file"),
    ("http/protobuf", answers(403), "403", "allow podgpu in the receiver"),
    ("http/protobuf", answers(404), "404", "has a receiver for OTLP"),
    ("http/protobuf", answers(503), "503", "check that the collector runs"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: f"{case[0]} {case[2]}")
async def test_a_receiver_that_refuses_is_a_failure(
    tmp_path: Path, case: tuple[str, Any, str, str]
) -> None:
    protocol, answer, observed, fix = case
    server = receiver(protocol)
    server.answer = answer
    async with server.serving():
        finding = await check_receiver(tmp_path, options(server.url, protocol))
    is_bad(finding, "failure", observed, fix)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_receiver_that_does_not_respond_is_a_failure(tmp_path: Path, protocol: str) -> None:
    server = receiver(protocol)
    server.answer = never
    async with server.serving():
        with_timeout = options(server.url, protocol, timeout=Duration.parse("200ms"))
        finding = await check_receiver(tmp_path, with_timeout)
    is_bad(finding, "failure", "0.2 s", "check that the collector runs")


async def test_an_unreadable_token_file_is_a_failure(tmp_path: Path) -> None:
    with_token = options("http://127.0.0.1:4317", "grpc", bearer_token_file=tmp_path / "none")
    is_bad(await check_receiver(tmp_path, with_token), "failure", "none", "mount the named file")


async def test_an_invalid_environment_variable_is_a_failure(tmp_path: Path) -> None:
    finding = await check_receiver(
        tmp_path, Options(), OTEL_EXPORTER_OTLP_PROTOCOL="carrier-pigeon"
    )
    is_bad(finding, "failure", "OTEL_EXPORTER_OTLP_PROTOCOL", "fix the named option or variable")


SECRET = "hunter2-and-more"  # noqa: S105 - only for tests
ECHOES = [
    ("grpc", fails("UNAUTHENTICATED", f"no such token: {SECRET}, Bearer {SECRET}")),
    ("grpc", fails("UNAVAILABLE", "x" * 290 + SECRET)),
    ("http/protobuf", answers(401, f"no such token: {SECRET}".encode(), "text/plain")),
    ("http/protobuf", answers(503, b"x" * 290 + SECRET.encode(), "text/plain")),
]


@pytest.mark.parametrize("case", ECHOES, ids=lambda case: case[0])
@pytest.mark.parametrize("kind", ["token", "header", "scheme"])
async def test_a_secret_in_a_response_is_concealed(
    tmp_path: Path, case: tuple[str, Any], kind: str
) -> None:
    protocol, answer = case
    (tmp_path / "token").write_text(SECRET)
    secret_options: dict[str, dict[str, Any]] = {
        "token": {"bearer_token_file": tmp_path / "token"},
        "header": {"headers": {"x-key": SECRET}},
        "scheme": {"headers": {"authorization": f"Bearer {SECRET}"}},
    }
    server = receiver(protocol)
    server.answer = answer
    async with server.serving():
        finding = await check_receiver(
            tmp_path, options(server.url, protocol, **secret_options[kind])
        )
    assert "(concealed)" in finding.observed, finding
    assert SECRET[:4] not in finding.observed
