"""Log records in addition to metrics: the whole sink with its queue and real receivers."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from config.value_types import Duration
from pipeline.delivery.contract import Record, Rejected
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.model import NS, Holding, Snapshot
from sinks.otlp import circuit_breaker
from sinks.otlp.signals import SIGNALS
from tests.sinks.otlp.encoding.logs import Log, logs_of
from tests.sinks.otlp.transport.receivers import (
    GrpcReceiver,
    HttpReceiver,
    answers,
    fails,
    names,
    responds,
    status,
)
from tests.sinks.otlp.transport.sending import pushing
from tests.sinks.otlp.transport.test_sink import Running, options
from tests.support.nodes import Node, at, every_field, gpu
from tests.support.sinks import FakeSinkContext
from tests.support.usage import holding, usage, victim, xid_error

ERROR = xid_error(gpu(0), 79, victim("a", gpu(0)), victim("b", gpu(0)))


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def receiver_of(protocol: str, *, logs: bool = True) -> Any:
    return GrpcReceiver(logs=logs) if protocol == "grpc" else HttpReceiver(logs=logs)


def unavailable(protocol: str, delay_s: float | None = None) -> Any:
    """Return a response that requests a retry, after `delay_s` seconds if given."""
    if protocol == "grpc":
        return fails("UNAVAILABLE", "no", status(14, "no", delay_s) if delay_s else b"")
    return answers(503, Retry_After=f"{delay_s:.0f}") if delay_s else answers(503)


def success(protocol: str) -> Any:
    return responds(b"") if protocol == "grpc" else answers(200)


class EventNode:
    """A node of one GPU with readings each second, ended holdings and XID errors."""

    def __init__(self) -> None:
        self.node = Node()
        self.node.has(gpu(0))
        self.ended: list[Holding] = []

    def next_snapshot(self, *, ends: bool = True, errors: Sequence[Any] = ()) -> Snapshot:
        self.node.seconds += 1
        self.node.reads(*every_field([gpu(0)], at(self.node.seconds)))
        if ends:
            number = len(self.ended) + 1
            one = holding(f"p{number}", gpu(0), end=at(self.node.seconds), held=number * NS)
            self.ended.append(replace(one, serial=number))
        snapshot = self.node.snapshot()
        return replace(snapshot, usage=usage(ended=self.ended), xids=tuple(errors))


def received_logs(receiver: Any) -> list[Log]:
    return [log for message in receiver.logs for log in logs_of(message)]


def received_power_points(receiver: Any) -> int:
    return sum(names(message).count("hw.power") for message in receiver.messages)


async def settled(running: Running) -> None:
    async with asyncio.timeout(15):
        while not running.total("produced_total") or running.total("queued"):
            await asyncio.sleep(0.01)


async def until(condition: Any) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


async def test_each_log_record_arrives_once_with_the_metrics(protocol: str) -> None:
    receiver, node = receiver_of(protocol), EventNode()
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        for number in range(3):
            running.inbox.offer(node.next_snapshot(errors=[ERROR] if number else []))
            await until(lambda: received_power_points(receiver) + running.total("queued") > number)  # noqa: B023
        await until(lambda: len(received_logs(receiver)) == 5)
        await settled(running)
        running.assert_balanced()
        assert running.total("emitted_total") == running.total("produced_total")
    found = received_logs(receiver)
    holdings = [log for log in found if log.event == "podgpu.holding.ended"]
    assert [log.resource["k8s.pod.name"] for log in holdings] == ["p1", "p2", "p3"]
    errors = [log for log in found if log.event == "podgpu.xid_error"]
    assert [log.resource["k8s.pod.name"] for log in errors] == ["a", "b"]
    assert received_power_points(receiver) == 3


async def test_with_logs_false_no_log_records_are_sent(protocol: str) -> None:
    receiver, node = receiver_of(protocol), EventNode()
    async with (
        receiver.serving(),
        Running(options(receiver.url, protocol, logs=False)) as running,
    ):
        running.inbox.offer(node.next_snapshot(errors=[ERROR]))
        await settled(running)
    assert (received_logs(receiver), received_power_points(receiver)) == ([], 1)
    assert running.by_reason("rejected_total") == {}


@pytest.mark.slow
async def test_each_log_record_is_sent_once_across_reloads(protocol: str) -> None:
    receiver, node = receiver_of(protocol), EventNode()
    ctx = FakeSinkContext()
    async with receiver.serving():
        for _ in range(3):
            async with Running(options(receiver.url, protocol), ctx) as running:
                running.inbox.offer(ctx.snapshot or node.next_snapshot())
                ctx.snapshot = node.next_snapshot()
                running.inbox.offer(ctx.snapshot)
                await until(lambda: len(received_logs(receiver)) == len(node.ended))
    assert [log.resource["k8s.pod.name"] for log in received_logs(receiver)] == [
        "p1",
        "p2",
        "p3",
        "p4",
    ]


async def test_a_receiver_without_log_support_is_logged_once_and_gets_metrics(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver, node = receiver_of(protocol, logs=False), EventNode()
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        for _ in range(4):
            running.inbox.offer(node.next_snapshot())
            await until(lambda: running.total("rejected_total") == len(node.ended))
        await settled(running)
        running.assert_balanced()
        assert running.by_reason("rejected_total") == {"no_logs": 4}
        assert running.total("delivering") == 1
    assert received_power_points(receiver) == 4
    warnings = [e.getMessage() for e in caplog.records if e.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert (
        "set logs: false, or enable log records in the receiver; 1 points are lost" in warnings[0]
    )


async def test_log_records_are_sent_again_later(
    protocol: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(circuit_breaker, "REOPEN_NS", 0)
    receiver, node = receiver_of(protocol), EventNode()
    receiver.answer_logs = fails("UNIMPLEMENTED") if protocol == "grpc" else answers(404)
    caplog.set_level(logging.INFO)
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        for number in (1, 2):
            running.inbox.offer(node.next_snapshot())
            await until(lambda: running.total("rejected_total") == number)  # noqa: B023
        receiver.answer_logs = success(protocol)
        running.inbox.offer(node.next_snapshot())
        await until(lambda: len(received_logs(receiver)) == 3)
        await settled(running)
    messages = [entry.getMessage() for entry in caplog.records]
    assert sum("log records again" in each for each in messages) == 1


@pytest.mark.parametrize("on_disk", [True, False])
async def test_an_outage_of_the_receiver_loses_no_log_records(
    protocol: str, on_disk: bool, tmp_path: Path
) -> None:
    receiver, node = receiver_of(protocol), EventNode()
    receiver.answer = receiver.answer_logs = unavailable(protocol)
    queue = QueueOptions(path=tmp_path / "queue" if on_disk else None)
    async with receiver.serving(), Running(options(receiver.url, protocol, queue=queue)) as running:
        for _ in range(5):
            running.inbox.offer(node.next_snapshot(errors=[ERROR]))
        await running.wait_for("retries_total", 2)
        before = len(receiver.messages), len(receiver.logs)
        receiver.answer = receiver.answer_logs = success(protocol)
        await settled(running)
        running.assert_balanced()
        assert running.total("emitted_total") == running.total("produced_total")
    assert before[1] == 0
    pods = [log.resource["k8s.pod.name"] for log in received_logs(receiver)]
    assert sorted(pods) == ["a", "b", "p1", "p2", "p3", "p4", "p5"]


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [None, 300], ids=["without a delay", "with a delay"])
async def test_log_records_that_are_not_accepted_delay_metrics_only_briefly(
    protocol: str, delay_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "MAX_RETRY_NS", NS // 5)
    receiver, node = receiver_of(protocol), EventNode()
    receiver.answer_logs = unavailable(protocol, delay_s)
    retry = RetryOptions(initial=Duration.parse("20ms"), max=Duration.parse("5m"))
    async with (
        receiver.serving(),
        Running(options(receiver.url, protocol, retry=retry)) as running,
    ):
        for _ in range(3):
            running.inbox.offer(node.next_snapshot())
        await until(lambda: received_power_points(receiver) == 3)
        await settled(running)
        running.assert_balanced()
        assert running.total("rejected_total") >= 1
        assert running.total("retries_total") >= 1
        assert running.by_reason("rejected_total").keys() <= {"unavailable", "http_503"}
        assert running.total("delivering") == 1


async def test_a_too_large_message_of_log_records_is_split(protocol: str) -> None:
    receiver, node = receiver_of(protocol), EventNode()
    small, large = success(protocol), cast("Any", answers(413))
    if protocol == "grpc":
        large = fails("RESOURCE_EXHAUSTED", "Received message larger than max (9999 vs. 2000)")
    refused = 0

    async def answer(request: Any) -> Any:
        nonlocal refused
        fits = len(receiver.logs[-1]) <= 2000
        refused += not fits
        return await (small if fits else large)(request)

    receiver.answer_logs = answer
    error = xid_error(gpu(0), 79, *(victim(f"v{number}", gpu(0)) for number in range(20)))
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        running.inbox.offer(node.next_snapshot(errors=[error]))
        await settled(running)
        running.assert_balanced()
        assert running.total("emitted_total") == running.total("produced_total")
    assert refused
    sent = [log for each in receiver.logs if len(each) <= 2000 for log in logs_of(each)]
    assert len(sent) == 21
    assert len({log.resource["k8s.pod.name"] for log in sent}) == 21
    assert received_power_points(receiver) == 1


async def test_rejected_log_records_of_a_partial_success_are_counted(protocol: str) -> None:
    receiver, node = receiver_of(protocol), EventNode()
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 1
    body = answer.SerializeToString()
    receiver.answer_logs = responds(body) if protocol == "grpc" else answers(200, body)
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        running.inbox.offer(node.next_snapshot())
        await until(lambda: running.by_reason("rejected_total") == {"partial": 1})
        await settled(running)
        running.assert_balanced()


async def test_queued_metrics_and_log_records_are_sent_after_a_restart(
    protocol: str, tmp_path: Path
) -> None:
    receiver, node = receiver_of(protocol), EventNode()
    receiver.answer = receiver.answer_logs = unavailable(protocol)
    queue = QueueOptions(path=tmp_path / "queue")
    async with receiver.serving():
        queued = options(receiver.url, protocol, queue=queue)
        async with Running(queued) as running:
            running.inbox.offer(node.next_snapshot())
            running.inbox.offer(node.next_snapshot())
            await running.wait_for("retries_total", 1)
        produced = running.total("produced_total")
        receiver.messages.clear()
        receiver.answer = receiver.answer_logs = success(protocol)
        async with Running(queued) as again:
            await again.wait_for("emitted_total", produced)
            again.assert_balanced()
    assert [log.resource["k8s.pod.name"] for log in received_logs(receiver)] == ["p1", "p2"]
    assert received_power_points(receiver) == 2


async def test_queued_log_records_are_rejected_when_logs_are_turned_off(tmp_path: Path) -> None:
    receiver, node = HttpReceiver(), EventNode()
    receiver.answer = answers(503)
    queue = QueueOptions(path=tmp_path / "queue")
    async with receiver.serving():
        async with Running(options(receiver.url, "http/protobuf", queue=queue)) as running:
            running.inbox.offer(node.next_snapshot())
            await running.wait_for("retries_total", 1)
        receiver.answer = answers(200)
        off = options(receiver.url, "http/protobuf", queue=queue, logs=False)
        async with Running(off) as again:
            await until(lambda: again.by_reason("rejected_total") == {"not_wanted": 1})
            await until(lambda: not again.total("queued"))
            again.assert_balanced()
    assert receiver.logs == []


async def test_a_record_of_an_unknown_signal_is_rejected_without_a_request() -> None:
    receiver = HttpReceiver()
    async with receiver.serving(), pushing(f"{receiver.url}/v1/metrics", "http/protobuf") as push:
        outcome = await push.send([Record(b"x", 3, 1, signal=max(SIGNALS) + 1)])
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.already_logged) == ("not_wanted", False)
    assert "of a newer podgpu" in outcome.message
    assert receiver.messages == receiver.logs == []
