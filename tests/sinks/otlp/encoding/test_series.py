"""Series over time: starts, ends, increments, and values that are left out."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fields import FieldPlan
from pipeline.model import Instant, PodInfo, Snapshot, SourceRemoved, Value
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.options import Temporality
from tests.sinks.otlp.encoding.support import Point, held, named, pods, points
from tests.support.examples import examples
from tests.support.nodes import Node, at, claim, every_field, gpu, mig, reading

MS = 1_000_000
GPU = gpu(0)


class Scene:
    """A node with one GPU, and an encoder that gets its snapshots."""

    def __init__(self, *fields: str, **options: object) -> None:
        self.node = Node()
        self.node.has(GPU)
        self.encoder = Encoder("node-1", FieldPlan(fields), **options)  # type: ignore[arg-type]

    def read(self, good_for: float = 15, **values: Value) -> list[Point]:
        self.node.seconds += 1
        self.node.reads(
            *(
                reading(GPU, field, value, when=at(self.node.seconds), good_for=good_for)
                for field, value in values.items()
            )
        )
        return self.encode()

    def encode(self) -> list[Point]:
        return points(self.encoder.encode(self.node.snapshot()))


def test_only_fresh_readings_are_sent() -> None:
    scene = Scene("power_watts", "gpu_temperature_celsius")
    assert len(scene.read(power_watts=70, gpu_temperature_celsius=40)) == 2
    assert [p.name for p in scene.read(power_watts=71)] == ["hw.power"]
    held(scene.node, claim("a", GPU.uuid))
    assert [p for p in scene.encode() if not p.ended] == []
    assert scene.encoder.encode(scene.node.snapshot()) == []


def test_a_field_that_is_not_in_the_plan_is_not_sent() -> None:
    scene = Scene("power_watts")
    assert scene.read(gpu_temperature_celsius=40, memory_used_bytes=1, memory_total_bytes=2) == []


def test_c1_a_counter_restarts_when_its_value_decreases() -> None:
    scene = Scene("pcie_replays")
    found = [
        point for value in (100, 105, 105, 3, 4, 0) for point in scene.read(pcie_replays=value)
    ]
    times = [at(second).wall_ns for second in range(1, 7)]
    assert [p.time for p in found] == times
    assert [p.start for p in found] == [times[at_] for at_ in (0, 0, 0, 3, 3, 5)]
    assert [p.value for p in found] == [100, 105, 105, 3, 4, 0]
    assert {p.kind for p in found} == {"counter"}


@pytest.mark.slow
@given(st.lists(st.integers(0, 1 << 70), min_size=2, max_size=12), st.booleans())
@settings(deadline=None)
def test_c1_no_rate_is_negative_after_a_counter_was_reset(values: list[int], delta: bool) -> None:
    scene = Scene("pcie_replays", temporality="delta" if delta else "cumulative")
    found = [point for value in values for point in scene.read(pcie_replays=value)]
    assert all(point.start <= point.time for point in found)
    if delta:
        assert all((point.value or 0) >= 0 for point in found)
        return
    for before, after in pairwise(found):
        assert before.value is not None
        assert after.value is not None
        if after.start == before.start:
            assert after.value >= before.value
        else:
            assert after.start == after.time > before.time


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_c1_the_first_error_of_a_rare_code_is_an_increment_from_0(temporality: Temporality) -> None:
    scene = Scene("xid_errors", "power_watts", temporality=temporality)
    scene.read(power_watts=70.5)
    scene.node.seconds = 5
    rare = reading(GPU, "xid_errors", 1, attrs=(("xid", "79"),), when=at(5))
    scene.node.reads(rare._replace(window_start=at(-60)))  # all codes are counted since then
    (first,) = points(scene.encoder.encode(scene.node.snapshot()))
    assert (first.value, first.start) == (1, at(-60).wall_ns)
    held(scene.node, claim("a", GPU.uuid))
    points(scene.encoder.encode(scene.node.snapshot()))
    scene.node.seconds = 6
    later = rare._replace(window_start=at(-60), at=at(6))
    scene.node.reads(later)
    moved = named(points(scene.encoder.encode(scene.node.snapshot())), "hw.errors")
    assert [(p.start, p.time) for p in moved] == [(at(6).wall_ns,) * 2], (
        "the error occurred before this pod"
    )
    if temporality == "delta":
        assert moved[0].value == 0


def test_c1_a_new_sink_starts_an_existing_counter_at_its_first_point() -> None:
    scene = Scene("pcie_replays", "xid_errors")
    scene.read(pcie_replays=5_000)
    scene.encoder = Scene("pcie_replays", "xid_errors").encoder
    since = at(-60)
    scene.node.reads(
        reading(GPU, "xid_errors", 1, attrs=(("xid", "79"),), when=at(1))._replace(
            window_start=since
        )
    )
    replays, xids = scene.read(pcie_replays=5_001) + scene.encode()
    if replays.value == 1:
        replays, xids = xids, replays
    assert replays.start == replays.time, "5,001 replays within a second would be wrong"
    assert (xids.value, xids.start) == (1, since.wall_ns)


def test_c1_without_starts_of_the_join_a_counter_starts_at_its_first_point() -> None:
    scene = Scene("pcie_replays")
    scene.node.reads(reading(GPU, "pcie_replays", 5))
    first = points(scene.encoder.encode(replace(scene.node.snapshot(), starts=())))
    scene.node.seconds = 1
    scene.node.reads(reading(GPU, "pcie_replays", 6, when=at(1)))
    second = points(scene.encoder.encode(replace(scene.node.snapshot(), starts=())))
    assert [(p.start, p.time) for p in (*first, *second)] == [
        (at(0).wall_ns, at(0).wall_ns),
        (at(0).wall_ns, at(1).wall_ns),
    ]


def test_a_gauge_has_no_start_and_an_updowncounter_that_of_its_first_point() -> None:
    scene = Scene("power_watts", "memory_used_bytes")
    scene.read(power_watts=70.5, memory_used_bytes=7)
    power, memory = scene.read(power_watts=71.5, memory_used_bytes=3)
    assert (power.kind, power.start) == ("gauge", 0)
    assert (memory.kind, memory.start) == ("updowncounter", at(1).wall_ns)


def test_when_the_holder_changes_the_series_ends_and_a_new_one_starts() -> None:
    scene = Scene("energy_millijoules")
    held(scene.node, claim("a", GPU.uuid))
    scene.read(energy_millijoules=5_000)
    scene.read(energy_millijoules=6_000)
    held(scene.node, claim("b", GPU.uuid))
    ended = scene.encode()
    (end,) = named(ended, "hw.energy")
    assert end.ended
    assert end.value is None
    assert end.of("k8s.pod.name") == "a"
    assert (end.start, end.time) == (at(1).wall_ns, at(2).wall_ns + MS)
    # The series about the holder end, too.
    assert {p.name for p in ended if p.ended and p.name != "hw.energy"} == {
        "podgpu.attribution.conflicts",
        *(f"podgpu.device.holder.{suffix}" for suffix in ("info", "since_timestamp", "age")),
    }
    assert all(p.ended for p in ended)
    after = scene.read(energy_millijoules=7_000)
    (start,) = named(after, "hw.energy")
    assert not any(point.ended for point in after)
    assert start.of("k8s.pod.name") == "b"
    assert start.start == start.time == at(3).wall_ns > end.time
    assert start.value == 7.0


def test_when_an_attribute_of_the_resource_changes_the_series_ends() -> None:
    scene = Scene("power_watts")
    held(scene.node, claim("a", GPU.uuid))
    pods(scene.node, PodInfo("u", "ml", "a", "Pending", labels=(("v", "1"),)))
    scene.read(power_watts=70)
    # Its phase is not in the resource.
    pods(scene.node, PodInfo("u", "ml", "a", "Running", labels=(("v", "1"),)))
    assert scene.encode() == []
    pods(scene.node, PodInfo("u", "ml", "a", "Running", labels=(("v", "2"),)))
    assert {p.of("k8s.pod.label.v") for p in scene.encode() if p.ended} == {"1"}
    assert {p.of("k8s.pod.label.v") for p in scene.read(power_watts=71)} == {"2"}


def test_series_of_a_removed_device_end_once() -> None:
    scene = Scene("power_watts", "energy_millijoules")
    scene.read(power_watts=70, energy_millijoules=1)
    scene.node.say(SourceRemoved())
    assert {p.name for p in scene.encode() if p.ended} == {"hw.power", "hw.energy"}
    assert scene.encode() == []
    scene.node.say(SourceRemoved())
    assert scene.encode() == []


def test_an_expired_series_ends_and_restarts() -> None:
    scene = Scene("power_watts", "pcie_replays")
    scene.read(good_for=2, power_watts=70, pcie_replays=5)
    scene.node.seconds = 10
    ends = scene.read(power_watts=71)
    (end,) = (p for p in ends if p.ended)
    assert end.name == "hw.errors"
    again = scene.read(pcie_replays=7)
    assert [(p.start, p.time) for p in again] == [(at(12).wall_ns,) * 2]


def test_a_series_without_a_point_has_no_end() -> None:
    scene = Scene("power_watts")
    assert scene.read(power_watts=float("nan")) == []
    scene.node.say(SourceRemoved())
    assert scene.encode() == []


def test_an_end_has_type_unit_and_temporality_of_its_series() -> None:
    scene = Scene("power_watts", "pcie_replays", "memory_used_bytes", temporality="delta")
    before = {p.name: p for p in scene.read(power_watts=1, pcie_replays=1, memory_used_bytes=1)}
    scene.node.say(SourceRemoved())
    for end in scene.encode():
        point = before[end.name]
        assert (end.kind, end.unit, end.temporality) == (point.kind, point.unit, point.temporality)


def test_increments_count_from_the_last_point() -> None:
    scene = Scene("energy_millijoules", "memory_used_bytes", temporality="delta")
    found = [
        scene.read(energy_millijoules=value, memory_used_bytes=value)
        for value in (5_000, 5_500, 5_500, 200, 700)
    ]
    energy = [p for points_ in found for p in named(points_, "hw.energy")]
    assert [p.value for p in energy] == [0.0, 0.5, 0.0, 0.2, 0.5]
    assert [p.start for p in energy] == [at(s).wall_ns for s in (1, 1, 2, 3, 4)]
    assert {p.temporality for p in energy} == {1}
    memory = [p for points_ in found for p in named(points_, "hw.gpu.memory.usage")]
    assert {(p.temporality, p.start) for p in memory} == {(2, at(1).wall_ns)}


def test_lowmemory_temporality_is_cumulative_for_counters() -> None:
    scene = Scene("energy_millijoules", temporality="lowmemory")
    scene.read(energy_millijoules=1_000)
    (point,) = scene.read(energy_millijoules=3_000)
    assert (point.value, point.temporality, point.start) == (3.0, 2, at(1).wall_ns)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (3, 3),
        (3.0, 3.0),
        (2**63 - 1, 2**63 - 1),
        (2**63, float(2**63)),
        (-(2**63) - 1, float(-(2**63) - 1)),
        (2.5, 2.5),
    ],
)
def test_a_value_outside_int64_is_sent_as_a_float(value: Value, sent: Value) -> None:
    scene = Scene("memory_used_bytes")
    scene.read(memory_used_bytes=1)
    (point,) = scene.read(memory_used_bytes=value)
    assert (type(point.value), point.value) == (type(sent), sent)
    (point,) = scene.read(memory_used_bytes=2)
    assert (type(point.value), point.value) == (int, 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 10**400])
@pytest.mark.parametrize("field", ["power_watts", "memory_used_bytes"])
def test_values_that_are_not_finite_are_left_out_and_counted(field: str, value: Value) -> None:
    scene = Scene(field, "gpu_temperature_celsius")
    found = scene.read(**{field: value, "gpu_temperature_celsius": 40})
    assert [p.name for p in found] == ["hw.temperature"]
    assert scene.encoder.not_finite == 1
    assert len(scene.read(**{field: 5, "gpu_temperature_celsius": 40})) == 2
    assert scene.encoder.not_finite == 1


STATUS = [
    ({"gpu_up": 1}, "ok"),
    ({"gpu_up": 0}, "failed"),
    ({"gpu_up": 1, "row_remap_pending": 1}, "predicted_failure"),
    ({"gpu_up": 1, "row_remap_pending": 1, "row_remap_failed": 1}, "failed"),
    ({"recovery_action": 0}, "ok"),
    ({"recovery_action": 1}, "degraded"),
    ({"recovery_action": 2}, "failed"),
    ({"recovery_action": 3, "row_remap_pending": 1}, "degraded"),
    ({"recovery_action": 4}, "degraded"),
    ({"power_watts": 4}, None),
    ({"gpu_up": float("nan")}, None),
]


@pytest.mark.parametrize(("values", "state"), STATUS)
def test_hw_status_shows_the_state_of_the_gpu(values: dict[str, Value], state: str | None) -> None:
    scene = Scene("gpu_up", "row_remap_pending", "row_remap_failed", "recovery_action")
    found = named(scene.read(**values), "hw.status")
    if state is None:
        assert found == []
        return
    states = ("ok", "degraded", "failed", "predicted_failure")
    assert {p.of("hw.state"): p.value for p in found} == {s: int(s == state) for s in states}
    # An unrelated reading sends no new status.
    assert len(named(scene.read(power_watts=5), "hw.status")) == 0


def test_memory_utilization_is_used_divided_by_total() -> None:
    scene = Scene("memory_used_bytes", "memory_total_bytes")
    assert named(scene.read(memory_used_bytes=20), "hw.gpu.memory.utilization") == []
    assert named(scene.read(memory_total_bytes=80), "hw.gpu.memory.utilization") == []
    (point,) = named(scene.read(memory_used_bytes=20), "hw.gpu.memory.utilization")
    assert point.value == 0.25
    assert named(scene.read(memory_used_bytes=0, memory_total_bytes=0), point.name) == []


@pytest.mark.slow
def test_a_large_snapshot_is_split_into_several_records() -> None:
    devices = [gpu(index) for index in range(10)]
    node = Node()
    node.has(*devices)
    node.podlist(*(claim(f"pod-{index}", d.uuid) for index, d in enumerate(devices[:5])))
    node.reads(*every_field(devices))
    snapshot = node.snapshot()
    whole = points(Encoder("node-1", FieldPlan.everything(), most_bytes=1 << 30).encode(snapshot))
    encoder = Encoder("node-1", FieldPlan.everything(), most_bytes=16 << 10)
    records = encoder.encode(snapshot)
    assert len(records) > 10
    assert max(len(record.data) for record in records) <= 16 << 10
    assert sorted(map(repr, points(records))) == sorted(map(repr, whole))
    node.say(SourceRemoved())
    ends = encoder.encode(node.snapshot())
    assert max(len(record.data) for record in ends) <= 16 << 10
    assert {p.identity for p in points(ends)} == {p.identity for p in whole}


HOSTILE = st.text(
    st.one_of(st.characters(), st.sampled_from(["\ud800", "\0", "\xff"])), max_size=8
).flatmap(lambda text: st.sampled_from([text, text * 9_000]))


@given(HOSTILE, HOSTILE, HOSTILE)
@settings(deadline=None, max_examples=examples(40))
def test_any_names_result_in_valid_messages(name: str, value: str, other: str) -> None:
    pairs = tuple(sorted({name: value, other: value}.items()))
    device = replace(GPU, model=value, facts=(("serial", value),))
    part = replace(mig(device, 1, profile=name), uuid=f"MIG-{other}")
    node = Node()
    node.has(device, part)
    pods(node, PodInfo("u", "ml", "a", owner_name=name, labels=pairs, annotations=pairs))
    held(node, claim("a", GPU.uuid, container=name or "c"))
    node.reads(
        reading(GPU, "processes", 5, attrs=(("kind", value), (name, other))),
        reading(part, "gpu_up", 1),
    )
    snapshot = node.snapshot()
    for names in ("semconv", "dcgm"):
        plan = FieldPlan(["processes", "gpu_up"])
        encoder = Encoder(name, plan, names=names, resource={name: value})
        records = encoder.encode(snapshot)
        assert points(records)
        assert sum(len(record.data) for record in records) < 200_000


def test_the_state_of_ended_series_is_freed() -> None:
    """Pods start and end each second, as in a soak test."""
    scene = Scene("power_watts", "energy_millijoules")
    sizes = []
    for turn in range(30):
        held(scene.node, claim(f"pod-{turn}", GPU.uuid))
        scene.encode()
        scene.read(power_watts=70, energy_millijoules=turn)
        encoder = scene.encoder
        sizes.append(
            (
                len(encoder.states),
                encoder._select.cache_info().currsize,
                encoder._previous_select and encoder._previous_select.cache_info().currsize,
                len(encoder.cache._known),
                len(encoder.cache.resources) < 6,
                len(encoder._wire._made) < 6,
            )
        )
    assert len(set(sizes[3:])) == 1


def test_cached_sets_of_fresh_readings_are_bounded() -> None:
    fields = [field.name for field in FieldPlan().fields if not field.attrs]
    scene = Scene(*fields)
    for turn in range(60):
        scene.read(**{name: 1 for at_, name in enumerate(fields) if (turn * 7 + 1) >> at_ % 9 & 1})
    assert scene.encoder._select.cache_info().currsize <= 16


def test_a_record_has_the_time_of_its_snapshot() -> None:
    node = Node()
    node.has(GPU)
    node.reads(reading(GPU, "power_watts", 5))
    snapshot: Snapshot = replace(node.snapshot(), at=Instant(at(0).mono_ns, 77))
    (record,) = Encoder("node-1", FieldPlan()).encode(snapshot)
    assert record.created_ns == 77
