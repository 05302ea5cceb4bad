"""An encoder that replaces another, as after a reload: no point is repeated or missing."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from pipeline.base.telemetry import Telemetry
from pipeline.component.registry import OWN_FAMILIES
from pipeline.fields import FieldPlan
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.options import Temporality
from sinks.otlp.push import OtlpPush
from tests.sinks.otlp.encoding.accounts import BUSY, ENERGY, HELD
from tests.sinks.otlp.encoding.churn import PLAN, Churn
from tests.sinks.otlp.encoding.support import Identity, Point, named, points
from tests.sinks.otlp.transport.sending import ManualClock, pushing_options
from tests.support.nodes import Node, at, gpu, reading
from tests.support.sinks import FakeSinkContext

TEMPORALITIES: tuple[Temporality, ...] = ("cumulative", "delta")
TOTALS = (BUSY, HELD, ENERGY)
HARMLESS_CHANGES: tuple[dict[str, Any], ...] = ({}, {"most_bytes": 9000})
OTHER_CHANGES: tuple[dict[str, Any], ...] = (
    {"plan": FieldPlan(["power_watts", "energy_millijoules"])},
    {"resource": {"k8s.cluster.name": "lab"}},
    {"containers": False},
    {"receiver": "another"},
    {"names": "dcgm"},
    {"temporality": "other"},
)


def _id(value: object) -> str:
    return (",".join(value) or "nothing") if isinstance(value, Mapping) else str(value)


class Reloaded(Churn):
    """A node whose encoder is replaced repeatedly.

    Args:
        every: number of snapshots between two replacements.
        changed: changed arguments of the second encoder; the two settings alternate.
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
        # A new sink also encodes the newest snapshot again.
        self._pushes += 1
        snapshot = self.node.snapshot()
        self.records[second] += self.encoder.encode(snapshot)
        if self._pushes % self.every == 0:
            settings = self.settings[self._pushes // self.every % 2]
            self.encoder = Encoder("node-1", previous=self.encoder, **settings)
        self.records[second] += self.encoder.encode(replace(snapshot, fresh=()))


def _sort_key(point: Point) -> tuple[Identity, int, bool]:
    return (point.identity, point.time, point.ended)


@cache
def _points_without_reloads(temporality: Temporality) -> dict[int, list[Point]]:
    churn = Churn(2, 2, temporality=temporality).run(10)
    churn.stop()
    churn.run(70)
    return {second: sorted(points(r), key=_sort_key) for second, r in churn.records.items()}


@pytest.mark.slow
@pytest.mark.parametrize("temporality", TEMPORALITIES)
@pytest.mark.parametrize(
    ("every", "changed"),
    # Smaller records are independent of how often the encoder is replaced.
    [(1, {}), (3, {}), (7, {}), (3, {"most_bytes": 9000})],
    ids=str,
)
def test_replacing_the_encoder_does_not_change_the_points(
    temporality: Temporality, every: int, changed: dict[str, Any]
) -> None:
    """In a soak test, a usage sample was sent twice, and 28 points had another start."""
    reloaded = Reloaded(temporality, every, changed).run(10)
    reloaded.stop()
    reloaded.run(70)
    for second, expected in _points_without_reloads(temporality).items():
        assert sorted(points(reloaded.records[second]), key=_sort_key) == expected


# Both frequencies with all changes: the first with one temporality, the second with the other.
_REPLACEMENTS = [
    (changed, every, TEMPORALITIES[(number + shift) % 2])
    for number, changed in enumerate([*HARMLESS_CHANGES, *OTHER_CHANGES])
    for shift, every in enumerate((1, 5))
]


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "every", "temporality"), _REPLACEMENTS, ids=_id)
def test_no_two_points_have_the_same_series_and_time(
    temporality: Temporality, every: int, changed: dict[str, Any]
) -> None:
    seen: dict[tuple[Identity, int], Point] = {}
    for point in Reloaded(temporality, every, changed).run(12).pushed():
        assert seen.setdefault((point.identity, point.time), point) is point


@pytest.mark.slow
@pytest.mark.parametrize("temporality", TEMPORALITIES)
@pytest.mark.parametrize("changed", [*HARMLESS_CHANGES, *OTHER_CHANGES[:3]], ids=_id)
def test_totals_are_complete_across_replacements(
    temporality: Temporality, changed: dict[str, Any]
) -> None:
    """With delta temporality as the sum over all resources; otherwise as the last value."""
    reloaded = Reloaded(temporality, 3, changed).run(20)
    totals: defaultdict[tuple[object, str], float] = defaultdict(float)
    for point in reloaded.pushed():
        if point.name in TOTALS and not point.ended:
            key = (point.of("k8s.pod.name"), point.name)
            totals[key] = float(point.value or 0) + (totals[key] if temporality == "delta" else 0)
    usage = reloaded.node.snapshot().usage
    assert usage is not None
    containers = [one for device in usage.devices.values() for one in device.containers]
    assert len(containers) > 30
    for one in containers:
        assert totals[one.subject.pod, HELD] == pytest.approx(one.held_ns / 1e9)
        assert totals[one.subject.pod, ENERGY] == pytest.approx((one.energy_mj or 0) / 1e3)


def test_another_resource_ends_the_series_and_keeps_the_start() -> None:
    """The old series end, and a total keeps its start in the new resource."""
    reloaded = Reloaded("cumulative", 10_000, {"resource": {"k8s.cluster.name": "lab"}}).run(5)
    before = reloaded.records[4]
    reloaded.stop()
    reloaded.encoder = Encoder("node-1", previous=reloaded.encoder, **reloaded.settings[1])
    reloaded.run(2)
    after = points([*reloaded.records[5], *reloaded.records[6]])
    living = set(reloaded.alive.values())
    old = {p.of("k8s.pod.name"): p for p in named(points(before), HELD) if not p.ended}
    for pod in living:
        sent = [p for p in named(after, HELD) if p.of("k8s.pod.name") == pod]
        assert [(p.of("k8s.cluster.name"), p.ended) for p in sent] == [
            (None, True),
            ("lab", False),
            ("lab", False),
        ]
        assert {p.start for p in sent} == {old[pod].start}


@pytest.mark.parametrize(("receiver", "times"), [("first", 0), ("another", 1)])
def test_another_receiver_gets_the_final_values_too(receiver: str, times: int) -> None:
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
    ended_pods = {f"pod-{number}" for number in range(18)} - living
    assert {pods.count(pod) for pod in ended_pods} == {times}


@pytest.mark.parametrize(
    "changed", [{}, {"resource": {"k8s.cluster.name": "lab"}}, {"receiver": "another"}], ids=_id
)
def test_increments_of_readings_continue_from_the_last_point(changed: dict[str, Any]) -> None:
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


def test_series_of_a_field_removed_from_the_plan_end() -> None:
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


def test_increments_of_own_metrics_continue_from_the_last_point() -> None:
    own = Telemetry(families=OWN_FAMILIES)
    encoder = Encoder("node-1", PLAN, temporality="delta")
    increments: list[float] = []
    for second in range(1, 4):
        own.add("podgpu_sink_errors_total", 5, (("sink", "a"),))
        record = encoder.telemetry(at(second), own.collect({}))
        assert record is not None
        increments += [float(p.value or 0) for p in named(points([record]), "podgpu.sink.errors")]
        encoder = Encoder("node-1", PLAN, temporality="delta", previous=encoder)
    assert increments == [5, 5, 5]


async def test_a_sink_continues_where_the_previous_one_stopped() -> None:
    """After any change except of the receiver; also after the change is reverted."""
    ctx, churn = FakeSinkContext(clock=ManualClock(), plan=PLAN), Churn(2, 1)
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
