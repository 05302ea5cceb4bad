"""The whole sink `otlp` with its queue and real receivers."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.value_types import ByteSize, Duration
from pipeline.base.channels import Channel
from pipeline.base.errors import PermanentError
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.model import Snapshot
from sinks.otlp.options import Options
from sinks.otlp.push import OtlpSink
from tests.sinks.otlp.transport.receivers import (
    GrpcReceiver,
    HttpReceiver,
    answers,
    fails,
    names,
    responds,
)
from tests.support.nodes import Node, at, every_field, gpu
from tests.support.sinks import FakeSinkContext

RETRY = RetryOptions(initial=Duration.parse("50ms"), max=Duration.parse("200ms"))
NEVER = Duration.parse("0s")


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def receiver_of(protocol: str) -> Any:
    return GrpcReceiver() if protocol == "grpc" else HttpReceiver()


def options(endpoint: str, protocol: str = "grpc", **others: Any) -> Options:
    return Options(
        endpoint=endpoint,
        protocol=protocol,  # type: ignore[arg-type]
        **{"retry": RETRY, "telemetry_interval": NEVER, **others},
    )


def snapshots(count: int) -> Iterator[Snapshot]:
    """Yield snapshots of two GPUs, with readings of every field each second."""
    node = Node()
    gpus = [gpu(0), gpu(1)]
    node.has(*gpus)
    for second in range(count):
        node.seconds = second
        node.reads(*every_field(gpus, at(second)))
        yield node.snapshot()


class Running:
    """A sink that runs until the context ends."""

    def __init__(self, options_: Options, ctx: FakeSinkContext | None = None) -> None:
        self.ctx = ctx or FakeSinkContext()
        self.inbox: Channel[Snapshot] = Channel(100)
        self._sink = OtlpSink(options_, self.ctx)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Running":
        await self._sink.__aenter__()
        self._task = asyncio.create_task(self._sink.run(self.inbox))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.inbox.close()
        assert self._task is not None
        await self._task
        await self._sink.__aexit__(None, None, None)

    def total(self, family: str) -> float:
        return sum(
            point.value
            for found, points in self.ctx.telemetry()
            if found.name == f"podgpu_sink_{family}"
            for point in points
        )

    def by_reason(self, family: str) -> dict[str, float]:
        return {
            dict(point.labels)["reason"]: point.value
            for found, points in self.ctx.telemetry()
            if found.name == f"podgpu_sink_{family}"
            for point in points
            if "reason" in dict(point.labels) and point.value
        }

    async def wait_for(self, family: str, count: float) -> None:
        async with asyncio.timeout(15):
            while self.total(family) < count:
                await asyncio.sleep(0.02)

    def assert_balanced(self) -> None:
        ends = self.total("emitted_total") + self.total("rejected_total") + self.total("queued")
        lost = {k: v for k, v in self.by_reason("dropped_total").items() if k != "doubled"}
        assert self.total("produced_total") + self.total("recovered_total") == ends + sum(
            lost.values()
        )


async def test_readings_are_sent(protocol: str) -> None:
    receiver = receiver_of(protocol)
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        for snapshot in snapshots(3):
            running.inbox.offer(snapshot)
        await running.wait_for("produced_total", 1)
        await running.wait_for("emitted_total", running.total("produced_total"))
    sent = {name for message in receiver.messages for name in names(message)}
    assert {"hw.gpu.utilization", "hw.power", "hw.temperature"} <= sent
    running.assert_balanced()
    assert running.total("queued") == 0


async def test_podgpus_own_metrics_are_sent_too(protocol: str) -> None:
    receiver = receiver_of(protocol)
    hourly = Duration.parse("1h")
    async with (
        receiver.serving(),
        Running(options(receiver.url, protocol, telemetry_interval=hourly)) as running,
    ):
        for snapshot in snapshots(3):
            running.inbox.offer(snapshot)
        await running.wait_for("produced_total", 1)
        await running.wait_for("emitted_total", running.total("produced_total"))
    sent = [name for message in receiver.messages for name in names(message)]
    assert sum("podgpu_sink_produced" in name or "sink.produced" in name for name in sent) == 1


@pytest.mark.slow
async def test_d1_an_outage_loses_no_points(protocol: str, tmp_path: Path) -> None:
    receiver = receiver_of(protocol)
    receiver.answer = fails("UNAVAILABLE", "no") if protocol == "grpc" else answers(503)
    queue = QueueOptions(path=tmp_path / "queue")
    async with receiver.serving(), Running(options(receiver.url, protocol, queue=queue)) as running:
        for snapshot in snapshots(20):
            running.inbox.offer(snapshot)
        await running.wait_for("retries_total", 3)
        refused = len(receiver.messages)
        receiver.answer = responds(b"") if protocol == "grpc" else answers(200)
        await running.wait_for("emitted_total", running.total("produced_total"))
    accepted = receiver.messages[refused:]
    assert sum(names(message).count("hw.power") for message in accepted) >= 1
    running.assert_balanced()
    assert running.by_reason("dropped_total").keys() <= {"doubled"}


@pytest.mark.parametrize("code", [400, 401, 404, 500])
async def test_o3_rejected_points_are_counted_by_status_code(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = HttpReceiver()
    receiver.answer = answers(code)
    async with receiver.serving(), Running(options(receiver.url, "http/protobuf")) as running:
        for snapshot in snapshots(5):
            running.inbox.offer(snapshot)
        await running.wait_for("produced_total", 1)
        await running.wait_for("rejected_total", running.total("produced_total"))
    assert running.by_reason("rejected_total") == {f"http_{code}": running.total("produced_total")}
    running.assert_balanced()
    warnings = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert f"answered {code}" in warnings[0].getMessage()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [200_000, 200])
async def test_o9_messages_are_split_for_a_receiver_with_a_small_limit(
    limit: int, tmp_path: Path
) -> None:
    """Messages are halved until they fit; a record that never fits is rejected and counted."""
    receiver = GrpcReceiver()
    small = (("grpc.max_receive_message_length", limit),)
    async with receiver.serving(options=small):
        # Records wait first, so that a message has more than one record.
        receiver.answer = fails("UNAVAILABLE", "not yet")
        async with Running(options(receiver.url, compression="none")) as running:
            for snapshot in snapshots(8):
                running.inbox.offer(snapshot)
            # With such a small limit the server rejects a message before it calls `answer`.
            await running.wait_for("retries_total" if limit > 200 else "rejected_total", 1)
            receiver.answer = responds(b"")
            async with asyncio.timeout(10):
                while running.total("queued"):
                    await asyncio.sleep(0.02)
    running.assert_balanced()
    if limit == 200:
        assert running.by_reason("rejected_total") == {"too_large": running.total("produced_total")}
        assert receiver.messages == []
    else:
        assert running.total("rejected_total") == 0
        assert max(map(len, receiver.messages)) <= limit


async def test_o10_an_unreachable_receiver_does_not_affect_another_sink(
    protocol: str, unused_tcp_port: int, tmp_path: Path
) -> None:
    receiver = receiver_of(protocol)
    queue = QueueOptions(path=tmp_path / "dead")
    dead = options(f"http://127.0.0.1:{unused_tcp_port}", protocol, queue=queue)
    async with (
        receiver.serving(),
        Running(options(receiver.url, protocol)) as alive,
        Running(dead) as waiting,
    ):
        for snapshot in snapshots(10):
            alive.inbox.offer(snapshot)
            waiting.inbox.offer(snapshot)
        await waiting.wait_for("retries_total", 1)
        await alive.wait_for("produced_total", 1)
        await alive.wait_for("emitted_total", alive.total("produced_total"))
        assert waiting.total("queued") > 0
    waiting.assert_balanced()
    assert waiting.total("emitted_total") == 0


async def test_o11_a_stop_during_an_outage_keeps_the_queue_for_the_next_start(
    protocol: str, unused_tcp_port: int, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    queue = QueueOptions(path=tmp_path / "queue")
    loop = asyncio.get_running_loop()
    async with Running(options(url, protocol, queue=queue)) as first:
        for snapshot in snapshots(10):
            first.inbox.offer(snapshot)
        await first.wait_for("retries_total", 1)
        ended = loop.time()
    assert loop.time() - ended < 5
    first.assert_balanced()
    produced = first.total("produced_total")
    receiver = receiver_of(protocol)
    address = f"127.0.0.1:{unused_tcp_port}" if protocol == "grpc" else "127.0.0.1"
    others = () if protocol == "grpc" else (unused_tcp_port,)
    async with (
        receiver.serving(address, *others),
        Running(options(url, protocol, queue=queue)) as second,
    ):
        await second.wait_for("emitted_total", produced)
    assert second.total("recovered_total") == produced
    second.assert_balanced()


@pytest.mark.slow
async def test_only_the_library_of_the_used_protocol_is_imported() -> None:
    code = """
import asyncio, logging, os, sys
from pipeline.base.clock import SystemClock
from pipeline.fields import FieldPlan
from pipeline.component.registry import OWN_FAMILIES, build_sink
from pipeline.base.telemetry import Meter, Telemetry
from sinks.otlp.options import Options
class Context:
    name, node, clock, plan = "x", "n", SystemClock(), FieldPlan.everything()
    log, meter = logging.getLogger("x"), Meter(Telemetry(families=OWN_FAMILIES), "sink", "x")
    restart_state = {}
    def latest(self):
        return None
    def telemetry(self):
        return []
async def main(protocol):
    async with build_sink("otlp", Options(protocol=protocol), Context()):
        found = [name for name in ("grpc", "aiohttp") if name in sys.modules]
        print(protocol, *found, flush=True)
for protocol in ("grpc", "http/protobuf"):
    child = os.fork()
    if not child:
        asyncio.run(main(protocol))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["grpc grpc", "http/protobuf aiohttp"]


async def test_an_invalid_variable_is_a_permanent_error_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    options_ = Options(queue=QueueOptions(path=tmp_path / "queue"))
    with pytest.raises(PermanentError, match="the variable OTEL_EXPORTER_OTLP_TIMEOUT is 10 milli"):
        await OtlpSink(options_, FakeSinkContext()).__aenter__()


async def test_endpoint_and_protocol_can_be_set_by_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = HttpReceiver()
    async with receiver.serving():
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
        options_ = Options(telemetry_interval=NEVER, max_message_size=ByteSize.parse("64KiB"))
        async with Running(options_) as running:
            for snapshot in snapshots(1):
                running.inbox.offer(snapshot)
            await running.wait_for("emitted_total", 1)
    assert receiver.headers[0]["x-key"] == "a b"


async def test_a_probable_mistake_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4318")
    sink = OtlpSink(Options(protocol="http/protobuf"), FakeSinkContext())
    for _ in range(2):
        async with sink:
            pass
    [warning] = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert warning.startswith("http://c:4318/: messages go to the path /, but most receivers use")
