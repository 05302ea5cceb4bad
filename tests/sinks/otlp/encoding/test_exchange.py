"""An encoder that takes another's place, as after a reload: nothing is told twice or left out."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pipeline.base.telemetry import Telemetry
from pipeline.fields import FieldPlan
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.options import Temporality
from sinks.otlp.push import OtlpPush
from tests.sinks.otlp.encoding.accounts import BUSY, ENERGY, HELD
from tests.sinks.otlp.encoding.churn import PLAN, Churn
from tests.sinks.otlp.encoding.support import Identity, Point, named, points
from tests.sinks.otlp.transport.sending import TurnedClock, pushing_options
from tests.support.nodes import Node, at, gpu, reading
from tests.support.sinks import FakeSinkContext

TEMPORALITIES: tuple[Temporality, ...] = ("cumulative", "delta")
TOTALS = (BUSY, HELD, ENERGY)
SAME: tuple[dict[str, Any], ...] = ({}, {"most_bytes": 9000})
OTHERS: tuple[dict[str, Any], ...] = (
    {"plan": FieldPlan(["power_watts", "energy_millijoules"])},
    {"resource": {"k8s.cluster.name": "lab"}},
    {"containers": False},
    {"receiver": "another"},
    {"names": "dcgm"},
    {"temporality": "other"},
)


def _named(changed: Mapping[str, Any]) -> str:
    return ",".join(changed) or "nothing"


class Reloaded(Churn):
    """A node whose encoder is exchanged now and then.

    Args:
        every: snapshots between two exchanges.
        changed: what the other encoder is given; it takes turns with the first.
    """

    def __init__(self, temporality: Temporality, every: int, changed: Mapping[str, Any]) -> None:
        super().__init__(2, 2, temporality=temporality)
        self.every, self._pushes = every, 0
        first: dict[str, Any] = {"plan": PLAN, "temporality": temporality}
        second = {**first, **changed}
        if "temporality" in changed:
            second["temporality"] = next(t for t in TEMPORALITIES if t != temporality)
        self.settings = (first, second)

    def run(self, seconds: int) -> "Reloaded":
        super().run(seconds)
        return self

    def _push(self, second: int) -> None:
        # The newest snapshot is seen once more, as by whoever comes just then.
        self._pushes += 1
        snapshot = self.node.snapshot()
        self.records[second] += self.encoder.encode(snapshot)
        if self._pushes % self.every == 0:
            settings = self.settings[self._pushes // self.every % 2]
            self.encoder = Encoder("node-1", previous=self.encoder, **settings)
        self.records[second] += self.encoder.encode(replace(snapshot, fresh=()))


def _sorted(point: Point) -> tuple[Identity, int, bool]:
    return (point.identity, point.time, point.ended)


@pytest.mark.parametrize("temporality", TEMPORALITIES)
@pytest.mark.parametrize("every", [1, 3, 7])
@pytest.mark.parametrize("changed", SAME, ids=_named)
def test_no_one_can_report_that_an_encoder_was_exchanged(
    temporality: Temporality, every: int, changed: dict[str, Any]
) -> None:
    """Soak: a look at the devices was told again, and 28 points came with another start."""
    churn, reloaded = Churn(2, 2, temporality=temporality), Reloaded(temporality, every, changed)
    for each in (churn, reloaded):
        each.run(20)
        each.stop()
        each.run(70)
    for second, records in churn.records.items():
        given_out, expected = points(reloaded.records[second]), points(records)
        assert sorted(given_out, key=_sorted) == sorted(expected, key=_sorted)


@pytest.mark.parametrize("temporality", TEMPORALITIES)
@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("changed", [*SAME, *OTHERS], ids=_named)
def test_no_point_has_the_series_and_the_time_of_another(
    temporality: Temporality, every: int, changed: dict[str, Any]
) -> None:
    seen: dict[tuple[Identity, int], Point] = {}
    for point in Reloaded(temporality, every, changed).run(20).pushed():
        assert seen.setdefault((point.identity, point.time), point) is point


@pytest.mark.parametrize("temporality", TEMPORALITIES)
@pytest.mark.parametrize("changed", [*SAME, *OTHERS[:3]], ids=_named)
def test_nothing_of_what_was_used_is_missing_or_reported_twice(
    temporality: Temporality, changed: dict[str, Any]
) -> None:
    """In increments, whichever resource they came in; else by the last value."""
    reloaded = Reloaded(temporality, 3, changed).run(20)
    had: defaultdict[tuple[object, str], float] = defaultdict(float)
    for point in reloaded.pushed():
        if point.name in TOTALS and not point.ended:
            key = (point.of("k8s.pod.name"), point.name)
            had[key] = float(point.value or 0) + (had[key] if temporality == "delta" else 0)
    usage = reloaded.node.snapshot().usage
    assert usage is not None
    given_out = [one for device in usage.devices.values() for one in device.containers]
    assert len(given_out) > 30
    for one in given_out:
        assert had[one.subject.pod, HELD] == pytest.approx(one.held_ns / 1e9)
        assert had[one.subject.pod, ENERGY] == pytest.approx((one.energy_mj or 0) / 1e3)


def test_another_resource_takes_the_series_along() -> None:
    """They end where they were, and a total has the start that it had."""
    reloaded = Reloaded("cumulative", 10_000, {"resource": {"k8s.cluster.name": "lab"}}).run(5)
    before = reloaded.records[4]
    reloaded.stop()
    reloaded.encoder = Encoder("node-1", previous=reloaded.encoder, **reloaded.settings[1])
    reloaded.run(2)
    after = points([*reloaded.records[5], *reloaded.records[6]])
    living = set(reloaded.alive.values())
    old = {p.of("k8s.pod.name"): p for p in named(points(before), HELD) if not p.ended}
    for pod in living:
        given_out = [p for p in named(after, HELD) if p.of("k8s.pod.name") == pod]
        assert [(p.of("k8s.cluster.name"), p.ended) for p in given_out] == [
            (None, True),
            ("lab", False),
            ("lab", False),
        ]
        assert {p.start for p in given_out} == {old[pod].start}


@pytest.mark.parametrize(("receiver", "again"), [("first", 0), ("another", 1)])
def test_another_receiver_gets_final_values_that_the_first_one_has(
    receiver: str, again: int
) -> None:
    reloaded = Reloaded("cumulative", 10_000, {})
    reloaded.encoder = Encoder("node-1", PLAN, receiver="first")
    reloaded.run(10)
    reloaded.stop()
    reloaded.run(2)
    reloaded.encoder = Encoder("node-1", PLAN, receiver=receiver, previous=reloaded.encoder)
    reloaded.run(4)
    after = [
        p
        for second in range(12, 16)
        for p in named(points(reloaded.records[second]), HELD)
        if not p.ended
    ]
    living = set(reloaded.alive.values())
    pods = [p.of("k8s.pod.name") for p in after]
    assert {pods.count(pod) for pod in living} == {4}
    gone = {f"pod-{number}" for number in range(18)} - living
    assert {pods.count(pod) for pod in gone} == {again}


@pytest.mark.parametrize(
    "changed", [{}, {"resource": {"k8s.cluster.name": "lab"}}, {"receiver": "another"}], ids=_named
)
def test_increments_of_readings_count_from_the_last_point(changed: dict[str, Any]) -> None:
    node, plan = Node(), FieldPlan(["pcie_replays"])
    node.has(gpu(0))
    encoder = Encoder("node-1", plan, temporality="delta")
    found: list[Point] = []
    for second, value in enumerate((100, 105, 109, 120), start=1):
        node.seconds = second
        node.reads(reading(gpu(0), "pcie_replays", value, when=at(second)))
        found += [p for p in points(encoder.encode(node.snapshot())) if not p.ended]
        if second == 2:
            encoder = Encoder("node-1", plan, temporality="delta", previous=encoder, **changed)
    assert [p.value for p in found] == [0, 5, 4, 11]
    assert [p.start for p in found[1:]] == [p.time for p in found[:-1]]


def test_a_field_that_the_plan_has_lost_ends() -> None:
    node = Node()
    node.has(gpu(0))
    encoder = Encoder("node-1", FieldPlan(["power_watts", "gpu_temperature_celsius"]))
    node.reads(
        reading(gpu(0), "power_watts", 70, when=at(0)),
        reading(gpu(0), "gpu_temperature_celsius", 40, when=at(0)),
    )
    first = points(encoder.encode(node.snapshot()))
    encoder = Encoder("node-1", FieldPlan(["power_watts"]), previous=encoder)
    after = points(encoder.encode(node.snapshot()))
    (ended,) = [point for point in after if point.ended]
    assert ended.name == "hw.temperature"
    assert ended.identity in {point.identity for point in first}


def test_own_increments_count_from_the_last_point() -> None:
    own = Telemetry()
    encoder = Encoder("node-1", PLAN, temporality="delta")
    given_out: list[float] = []
    for second in range(1, 4):
        own.add("podgpu_sink_errors_total", 5, (("sink", "a"),))
        record = encoder.telemetry(at(second), own.collect({}))
        assert record is not None
        given_out += [float(p.value or 0) for p in named(points([record]), "podgpu.sink.errors")]
        encoder = Encoder("node-1", PLAN, temporality="delta", previous=encoder)
    assert given_out == [5, 5, 5]


async def test_a_sink_continues_where_the_one_before_it_was() -> None:
    """Whatever was changed but the receiver; a change that is put back goes on, too."""
    ctx, churn = FakeSinkContext(clock=TurnedClock(), plan=PLAN), Churn(2, 1)
    churn.run(3)
    snapshot = replace(churn.node.snapshot(), fresh=())
    first = OtlpPush(pushing_options(headers={"authorization": "a"}), ctx, {})
    second = OtlpPush(pushing_options(timeout="1s", headers={"authorization": "b"}), ctx, {})
    other = OtlpPush(pushing_options("http://127.0.0.1:9"), ctx, {})
    counts = []
    for push in (first, second, first, other):
        async with push:
            records = [r for r in push.encode(snapshot) if not r.signal]
            counts.append(len(named(points(records), HELD)))
    assert counts == [2, 0, 0, 2]
    assert ctx.counted("podgpu_sink_dropped_total") == {}
