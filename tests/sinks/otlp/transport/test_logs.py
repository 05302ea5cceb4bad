"""Log records beside metrics: with the whole sink, its queue, and real receivers."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from config.value_types import Duration
from pipeline.delivery.contract import Record, Rejected
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.model import NS, Holding, Snapshot
from sinks.otlp import circuit_breaker
from sinks.otlp.messages import ExportLogsServiceResponse
from sinks.otlp.signals import SIGNALS
from tests.sinks.otlp.encoding.logs import Log, logs_of
from tests.sinks.otlp.transport.receivers import (
    GrpcReceiver,
    HttpReceiver,
    answers,
    fails,
    names,
    says,
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


def busy(protocol: str, asks: float | None = None) -> Any:
    """Takes nothing now, and may ask to be left alone for some seconds."""
    if protocol == "grpc":
        return fails("UNAVAILABLE", "no", status(14, "no", asks) if asks else b"")
    return answers(503, Retry_After=f"{asks:.0f}") if asks else answers(503)


def fine(protocol: str) -> Any:
    return says(b"") if protocol == "grpc" else answers(200)


class Story:
    """A node of one GPU whose fields are read once a second, with what happens there."""

    def __init__(self) -> None:
        self.node = Node()
        self.node.has(gpu(0))
        self.ended: list[Holding] = []

    def continues(self, *, ends: bool = True, errors: Sequence[Any] = ()) -> Snapshot:
        self.node.seconds += 1
        self.node.reads(*every_field([gpu(0)], at(self.node.seconds)))
        if ends:
            number = len(self.ended) + 1
            one = holding(f"p{number}", gpu(0), end=at(self.node.seconds), held=number * NS)
            self.ended.append(replace(one, serial=number))
        snapshot = self.node.snapshot()
        return replace(snapshot, usage=usage(ended=self.ended), xids=tuple(errors))


def taken(receiver: Any) -> list[Log]:
    return [log for message in receiver.logs for log in logs_of(message)]


def powers(receiver: Any) -> int:
    return sum(names(message).count("hw.power") for message in receiver.messages)


async def settled(running: Running) -> None:
    async with asyncio.timeout(15):
        while not running.of("produced_total") or running.of("queued"):
            await asyncio.sleep(0.01)


async def until(what: Any) -> None:
    async with asyncio.timeout(15):
        while not what():
            await asyncio.sleep(0.01)


async def test_each_arrives_once_beside_the_metrics(protocol: str) -> None:
    receiver, story = receiver_of(protocol), Story()
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        for number in range(3):
            running.inbox.offer(story.continues(errors=[ERROR] if number else []))
            await until(lambda: powers(receiver) + running.of("queued") > number)  # noqa: B023
        await until(lambda: len(taken(receiver)) == 5)
        await settled(running)
        running.adds_up()
        assert running.of("emitted_total") == running.of("produced_total")
    found = taken(receiver)
    ends = [log for log in found if log.event == "podgpu.holding.ended"]
    assert [log.resource["k8s.pod.name"] for log in ends] == ["p1", "p2", "p3"]
    errors = [log for log in found if log.event == "podgpu.xid_error"]
    assert [log.resource["k8s.pod.name"] for log in errors] == ["a", "b"]
    assert powers(receiver) == 3


async def test_none_are_made_where_none_are_wanted(protocol: str) -> None:
    receiver, story = receiver_of(protocol), Story()
    async with (
        receiver.serving(),
        Running(options(receiver.url, protocol, logs=False)) as running,
    ):
        running.inbox.offer(story.continues(errors=[ERROR]))
        await settled(running)
    assert (taken(receiver), powers(receiver)) == ([], 1)
    assert running.by("rejected_total") == {}


async def test_over_a_reload_each_is_reported_once(protocol: str) -> None:
    receiver, story = receiver_of(protocol), Story()
    ctx = FakeSinkContext()
    async with receiver.serving():
        for _ in range(3):
            async with Running(options(receiver.url, protocol), ctx) as running:
                running.inbox.offer(ctx.snapshot or story.continues())
                ctx.snapshot = story.continues()
                running.inbox.offer(ctx.snapshot)
                await until(lambda: len(taken(receiver)) == len(story.ended))
    assert [log.resource["k8s.pod.name"] for log in taken(receiver)] == ["p1", "p2", "p3", "p4"]


async def test_a_receiver_without_a_use_for_them_costs_no_metrics_and_is_reported_of_once(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver, story = receiver_of(protocol, logs=False), Story()
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        for _ in range(4):
            running.inbox.offer(story.continues())
            await until(lambda: running.of("rejected_total") == len(story.ended))
        await settled(running)
        running.adds_up()
        assert running.by("rejected_total") == {"no_logs": 4}
        assert running.of("delivering") == 1
    assert powers(receiver) == 4
    given_out = [e.getMessage() for e in caplog.records if e.levelno >= logging.WARNING]
    assert len(given_out) == 1
    assert (
        "set logs: false, or enable log records in the receiver; 1 points are lost" in given_out[0]
    )


async def test_they_are_tried_again_later(
    protocol: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(circuit_breaker, "REOPEN_NS", 0)
    receiver, story = receiver_of(protocol), Story()
    receiver.answer_logs = fails("UNIMPLEMENTED") if protocol == "grpc" else answers(404)
    caplog.set_level(logging.INFO)
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        for number in (1, 2):
            running.inbox.offer(story.continues())
            await until(lambda: running.of("rejected_total") == number)  # noqa: B023
        receiver.answer_logs = fine(protocol)
        running.inbox.offer(story.continues())
        await until(lambda: len(taken(receiver)) == 3)
        await settled(running)
    said = [entry.getMessage() for entry in caplog.records]
    assert sum("log records again" in each for each in said) == 1


@pytest.mark.parametrize("on_disk", [True, False])
async def test_a_dead_receiver_costs_none(protocol: str, on_disk: bool, tmp_path: Path) -> None:
    receiver, story = receiver_of(protocol), Story()
    receiver.answer = receiver.answer_logs = busy(protocol)
    queue = QueueOptions(path=tmp_path / "queue" if on_disk else None)
    async with receiver.serving(), Running(options(receiver.url, protocol, queue=queue)) as running:
        for _ in range(5):
            running.inbox.offer(story.continues(errors=[ERROR]))
        await running.until("retries_total", 2)
        before = len(receiver.messages), len(receiver.logs)
        receiver.answer = receiver.answer_logs = fine(protocol)
        await settled(running)
        running.adds_up()
        assert running.of("emitted_total") == running.of("produced_total")
    assert before[1] == 0
    pods = [log.resource["k8s.pod.name"] for log in taken(receiver)]
    assert sorted(pods) == ["a", "b", "p1", "p2", "p3", "p4", "p5"]


@pytest.mark.parametrize("asks", [None, 300], ids=["", "and is to be left alone"])
async def test_log_records_that_are_not_taken_now_do_not_hold_up_metrics_for_long(
    protocol: str, asks: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "MAX_RETRY_NS", NS // 5)
    receiver, story = receiver_of(protocol), Story()
    receiver.answer_logs = busy(protocol, asks)
    retry = RetryOptions(initial=Duration.parse("20ms"), max=Duration.parse("5m"))
    async with (
        receiver.serving(),
        Running(options(receiver.url, protocol, retry=retry)) as running,
    ):
        for _ in range(3):
            running.inbox.offer(story.continues())
        await until(lambda: powers(receiver) == 3)
        await settled(running)
        running.adds_up()
        assert running.of("rejected_total") >= 1
        assert running.of("retries_total") >= 1
        assert running.by("rejected_total").keys() <= {"unavailable", "http_503"}
        assert running.of("delivering") == 1


async def test_log_records_that_are_too_large_together_go_in_halves(protocol: str) -> None:
    receiver, story = receiver_of(protocol), Story()
    small, large = fine(protocol), cast("Any", answers(413))
    if protocol == "grpc":
        large = fails("RESOURCE_EXHAUSTED", "Received message larger than max (9999 vs. 2000)")
    refused = 0

    async def answer(request: Any) -> Any:
        nonlocal refused
        whole = len(receiver.logs[-1]) <= 2000
        refused += not whole
        return await (small if whole else large)(request)

    receiver.answer_logs = answer
    crowd = xid_error(gpu(0), 79, *(victim(f"v{number}", gpu(0)) for number in range(20)))
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        running.inbox.offer(story.continues(errors=[crowd]))
        await settled(running)
        running.adds_up()
        assert running.of("emitted_total") == running.of("produced_total")
    assert refused
    sent = [log for each in receiver.logs if len(each) <= 2000 for log in logs_of(each)]
    assert len(sent) == 21
    assert len({log.resource["k8s.pod.name"] for log in sent}) == 21
    assert powers(receiver) == 1


async def test_some_of_them_refused_are_counted(protocol: str) -> None:
    receiver, story = receiver_of(protocol), Story()
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 1
    body = answer.SerializeToString()
    receiver.answer_logs = says(body) if protocol == "grpc" else answers(200, body)
    async with receiver.serving(), Running(options(receiver.url, protocol)) as running:
        running.inbox.offer(story.continues())
        await until(lambda: running.by("rejected_total") == {"partial": 1})
        await settled(running)
        running.adds_up()


async def test_what_waits_on_the_disk_is_sent_by_the_next_life_as_what_it_is(
    protocol: str, tmp_path: Path
) -> None:
    receiver, story = receiver_of(protocol), Story()
    receiver.answer = receiver.answer_logs = busy(protocol)
    queue = QueueOptions(path=tmp_path / "queue")
    async with receiver.serving():
        made = options(receiver.url, protocol, queue=queue)
        async with Running(made) as running:
            running.inbox.offer(story.continues())
            running.inbox.offer(story.continues())
            await running.until("retries_total", 1)
        produced = running.of("produced_total")
        receiver.messages.clear()
        receiver.answer = receiver.answer_logs = fine(protocol)
        async with Running(made) as again:
            await again.until("emitted_total", produced)
            again.adds_up()
    assert [log.resource["k8s.pod.name"] for log in taken(receiver)] == ["p1", "p2"]
    assert powers(receiver) == 2


async def test_what_waits_is_refused_once_they_are_turned_off(tmp_path: Path) -> None:
    receiver, story = HttpReceiver(), Story()
    receiver.answer = answers(503)
    queue = QueueOptions(path=tmp_path / "queue")
    async with receiver.serving():
        async with Running(options(receiver.url, "http/protobuf", queue=queue)) as running:
            running.inbox.offer(story.continues())
            await running.until("retries_total", 1)
        receiver.answer = answers(200)
        off = options(receiver.url, "http/protobuf", queue=queue, logs=False)
        async with Running(off) as again:
            await until(lambda: again.by("rejected_total") == {"not_wanted": 1})
            await until(lambda: not again.of("queued"))
            again.adds_up()
    assert receiver.logs == []


async def test_a_signal_that_is_not_known_is_refused_without_a_message() -> None:
    receiver = HttpReceiver()
    async with receiver.serving(), pushing(f"{receiver.url}/v1/metrics", "http/protobuf") as push:
        outcome = await push.send([Record(b"x", 3, 1, signal=max(SIGNALS) + 1)])
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.already_logged) == ("not_wanted", False)
    assert "of a newer podgpu" in outcome.message
    assert receiver.messages == receiver.logs == []
