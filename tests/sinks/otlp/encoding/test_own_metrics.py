"""podgpu's own metrics in OTLP."""

import pytest

from pipeline.base.telemetry import Family, FamilyPoints, Telemetry
from pipeline.base.telemetry import Point as Own
from pipeline.component.registry import OWN_FAMILIES
from pipeline.fields import FieldPlan
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.encoding.metric_names import own_instrument as instrument
from sinks.otlp.options import Temporality
from tests.sinks.otlp.encoding.prometheus import name_of
from tests.sinks.otlp.encoding.support import Point, points
from tests.support.nodes import START, at

COUNTS = "podgpu_source_events_total"


def sent(encoder: Encoder, second: float, families: list[FamilyPoints]) -> list[Point]:
    record = encoder.telemetry(at(second), families)
    assert record is not None
    assert record.created_ns == at(second).wall_ns
    return points([record])


def make(temporality: Temporality = "cumulative") -> Encoder:
    return Encoder("node-1", FieldPlan(), temporality=temporality)


@pytest.mark.parametrize("family", [f for f in OWN_FAMILIES if f.type != "summary"], ids=str)
def test_prometheus_converts_own_metrics_to_the_names_of_the_page(family: Family) -> None:
    found = instrument(family)
    assert name_of(found.name, found.unit, found.kind) == family.name


@pytest.mark.parametrize("family", OWN_FAMILIES, ids=str)
def test_with_dcgm_names_own_metrics_have_the_names_of_the_page(family: Family) -> None:
    for suffix in ("_sum", "_count") if family.type == "summary" else ("",):
        found = instrument(family, suffix, page=True)
        assert (found.name, found.unit) == (family.name + suffix, "")


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_series_of_a_removed_component_end(temporality: Temporality) -> None:
    own, encoder = Telemetry(families=OWN_FAMILIES), make(temporality)
    for sink in ("a", "b"):
        own.set("podgpu_sink_queued", 5, (("sink", sink),))
        own.add("podgpu_sink_produced_total", 5, (("sink", sink),))
    sent(encoder, 1, own.collect({}))
    own.forget(("sink", "b"))
    found = sent(encoder, 2, own.collect({}))
    assert {(p.name, p.of("sink"), p.ended) for p in found} == {
        (name, sink, sink == "b")
        for name in ("podgpu.sink.queued", "podgpu.sink.produced")
        for sink in ("a", "b")
    }
    assert {(p.value, p.time) for p in found if p.ended} == {(None, at(2).wall_ns)}
    assert not [p for p in sent(encoder, 3, own.collect({})) if p.ended], "ended once"


def test_no_two_own_metrics_have_the_same_name() -> None:
    names = [
        instrument(family, suffix).name
        for family in OWN_FAMILIES
        for suffix in (("_sum", "_count") if family.type == "summary" else ("",))
    ]
    assert len(set(names)) == len(names)


def test_own_metrics_have_the_resource_of_the_node() -> None:
    own = Telemetry(families=OWN_FAMILIES)
    own.set("podgpu_sink_queue_bytes", 4096, (("sink", "otlp"),))
    own.add(COUNTS, 3, (("source", "gpus"),))
    own.observe("podgpu_sample_duration_seconds", 0.25, (("source", "gpus"),))
    own.observe("podgpu_sample_duration_seconds", 0.5, (("source", "gpus"),))
    computed = {"process_start_time_seconds": [Own((), START.wall_ns / 1e9 - 50)]}
    found = {p.name: p for p in sent(make(), 10, own.collect(computed))}
    assert {name: (p.kind, p.unit, p.value) for name, p in found.items()} == {
        "podgpu.sink.queue": ("gauge", "By", 4096.0),
        "podgpu.source.events": ("counter", "", 3.0),
        "podgpu.sample.duration.sum": ("counter", "s", 0.75),
        "podgpu.sample.duration.count": ("counter", "", 2.0),
        "process.start_time": ("gauge", "s", START.wall_ns / 1e9 - 50),
    }
    assert {p.of("service.instance.id") for p in found.values()} == {"node-1"}
    assert found["podgpu.sink.queue"].attributes == (("sink", "otlp"),)
    assert {p.time for p in found.values()} == {at(10).wall_ns}
    # Counters start with the process.
    assert {p.start for p in found.values()} == {0, at(-50).wall_ns}


def test_without_a_known_process_start_counters_start_at_the_first_call() -> None:
    own, encoder = Telemetry(families=OWN_FAMILIES), make()
    own.add(COUNTS, 3, ())
    assert [p.start for p in sent(encoder, 10, own.collect({}))] == [at(10).wall_ns]
    assert [p.start for p in sent(encoder, 70, own.collect({}))] == [at(10).wall_ns]


def test_delta_temporality_sends_increments() -> None:
    own, encoder = Telemetry(families=OWN_FAMILIES), make("delta")
    computed = {"process_start_time_seconds": [Own((), START.wall_ns / 1e9)]}
    found = []
    for turn in range(1, 4):
        own.add(COUNTS, turn, ())
        found += [p for p in sent(encoder, turn, own.collect(computed)) if p.kind == "counter"]
    assert [p.value for p in found] == [1, 2, 3]
    assert [p.start for p in found] == [at(0).wall_ns, at(1).wall_ns, at(2).wall_ns]
    assert {p.temporality for p in found} == {1}


def test_values_that_are_not_finite_are_left_out() -> None:
    own = Telemetry(families=OWN_FAMILIES)
    own.set("podgpu_sink_queued", float("nan"), ())
    assert make().telemetry(at(1), own.collect({})) is None
    assert make().telemetry(at(1), []) is None
