"""What the doctor says of a receiver, each fault provoked on real ones."""

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


async def looked(folder: Path, made: Options, **environ: str) -> Finding:
    return of(await examine(made, context(folder / "ctx", environ=environ)), "otlp.receiver")


def receiver(protocol: str) -> Any:
    return GrpcReceiver() if protocol == "grpc" else HttpReceiver()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_receiver_is_sent_no_point_and_is_well(tmp_path: Path, protocol: str) -> None:
    async with receiver(protocol).serving() as made:
        given_out = await looked(tmp_path, options(made.url, protocol))
    assert given_out.verdict is Verdict.OK, given_out
    assert made.messages == [b""]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_no_one_listens(tmp_path: Path, protocol: str) -> None:
    url = f"http://127.0.0.1:{await free_port()}"
    given_out = await looked(tmp_path, options(url, protocol))
    is_bad(given_out, "failure", "127.0.0.1", "check that the collector runs")


REFUSALS = [
    ("grpc", fails("UNAUTHENTICATED", "no token"), "no token", "bearer_token_file"),
    ("grpc", fails("PERMISSION_DENIED", "not you"), "not you", "allow podgpu in the receiver"),
    ("grpc", fails("UNIMPLEMENTED", "no metrics"), "no metrics", "has a receiver for OTLP"),
    ("http/protobuf", answers(401), "401", "bearer_token_file"),
    ("http/protobuf", answers(403), "403", "allow podgpu in the receiver"),
    ("http/protobuf", answers(404), "404", "has a receiver for OTLP"),
    ("http/protobuf", answers(503), "503", "check that the collector runs"),
]


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: f"{row[0]} {row[2]}")
async def test_a_receiver_that_refuses(tmp_path: Path, row: tuple[str, Any, str, str]) -> None:
    protocol, answer, saw, repair = row
    made = receiver(protocol)
    made.answer = answer
    async with made.serving():
        given_out = await looked(tmp_path, options(made.url, protocol))
    is_bad(given_out, "failure", saw, repair)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_receiver_that_does_not_answer(tmp_path: Path, protocol: str) -> None:
    made = receiver(protocol)
    made.answer = never
    async with made.serving():
        asked = options(made.url, protocol, timeout=Duration.parse("200ms"))
        given_out = await looked(tmp_path, asked)
    is_bad(given_out, "failure", "0.2 s", "check that the collector runs")


async def test_a_token_that_cannot_be_read(tmp_path: Path) -> None:
    made = options("http://127.0.0.1:4317", "grpc", bearer_token_file=tmp_path / "none")
    is_bad(await looked(tmp_path, made), "failure", "none", "mount the named file")


async def test_a_variable_that_cannot_be_used(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, Options(), OTEL_EXPORTER_OTLP_PROTOCOL="carrier-pigeon")
    is_bad(given_out, "failure", "OTEL_EXPORTER_OTLP_PROTOCOL", "fix the named option or variable")


SECRET = "hunter2-and-more"  # noqa: S105 - of the test
REPEATS = [
    ("grpc", fails("UNAUTHENTICATED", f"no such token: {SECRET}, Bearer {SECRET}")),
    ("grpc", fails("UNAVAILABLE", "x" * 290 + SECRET)),
    ("http/protobuf", answers(401, f"no such token: {SECRET}".encode(), "text/plain")),
    ("http/protobuf", answers(503, b"x" * 290 + SECRET.encode(), "text/plain")),
]


@pytest.mark.parametrize("row", REPEATS, ids=lambda row: row[0])
@pytest.mark.parametrize("way", ["token", "header", "scheme"])
async def test_a_receiver_that_repeats_a_secret_is_not_repeated(
    tmp_path: Path, row: tuple[str, Any], way: str
) -> None:
    protocol, answer = row
    (tmp_path / "token").write_text(SECRET)
    ways: dict[str, dict[str, Any]] = {
        "token": {"bearer_token_file": tmp_path / "token"},
        "header": {"headers": {"x-key": SECRET}},
        "scheme": {"headers": {"authorization": f"Bearer {SECRET}"}},
    }
    made = receiver(protocol)
    made.answer = answer
    async with made.serving():
        given_out = await looked(tmp_path, options(made.url, protocol, **ways[way]))
    assert "(concealed)" in given_out.observed, given_out
    assert SECRET[:4] not in given_out.observed
