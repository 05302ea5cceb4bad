"""The content of `device` and `telemetry` lines."""

from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.telemetry import Meter, Point, Telemetry
from pipeline.component.registry import OWN_FAMILIES
from pipeline.fields import CATALOGUE, FieldPlan
from pipeline.model import (
    NS,
    Attribution,
    Device,
    Evidence,
    Holder,
    Instant,
    Layout,
    MigPlace,
    PartialRef,
    PodInfo,
    Reading,
    Series,
    Snapshot,
    SourceState,
)
from sinks.jsonl.json_values import rfc3339
from sinks.jsonl.line_encoder import LineEncoder
from tests.sinks.jsonl.support import documented_lines, parsed, shape
from tests.support.examples import examples
from tests.support.nodes import START, Node, at, claim, every_field, gpu, mig, reading


def lines(snapshot: Snapshot, plan: FieldPlan | None = None) -> list[dict[str, Any]]:
    return parsed(
        b"".join(LineEncoder("node-1", plan or FieldPlan.everything()).devices(snapshot).lines)
    )


def test_a_device_line() -> None:
    node = Node()
    node.has(gpu(0, minor=3))
    node.podlist(claim("trainer", gpu(0).uuid, share=0.5))
    node.seconds = 2.5
    node.reads(
        reading(gpu(0), "gpu_utilization_percent", 96, when=at(2)),
        reading(gpu(0), "power_watts", 512.25, when=at(2.123456789)),
        reading(gpu(0), "xid_errors", 2, attrs=(("xid", "79"),), when=at(1)),
        reading(gpu(0), "xid_errors", 0, attrs=(("xid", "13"),), when=at(1)),
    )
    assert lines(node.snapshot()) == [
        {
            "record": "device",
            "time": "2027-01-15T08:00:02.123456Z",
            "node": "node-1",
            "device": {
                "uuid": gpu(0).uuid,
                "index": 0,
                "minor": 3,
                "pci_bus_id": "00000000:01:00.0",
                "model": "NVIDIA H100 80GB HBM3",
                "driver": "580.159.04",
            },
            "readings": {
                "power_watts": 512.25,
                "gpu_utilization_percent": 96,
                "xid_errors": [{"xid": "13", "value": 0}, {"xid": "79", "value": 2}],
            },
            "holders": [
                {
                    "namespace": "ml",
                    "pod": "trainer",
                    "container": "main",
                    "share": 0.5,
                    "source": "podlist",
                    "evidence": "pod_list_file",
                    "since": "2027-01-15T08:00:00.000000Z",
                    "since_known": False,
                    "age_seconds": 2.5,
                }
            ],
        }
    ]


def test_every_field_always_has_the_same_structure() -> None:
    node = Node()
    node.has(gpu(0))
    node.reads(*every_field([gpu(0)]))
    (line,) = lines(node.snapshot())
    assert set(line["readings"]) == {field.name for field in CATALOGUE}
    for field in CATALOGUE:
        found = line["readings"][field.name]
        assert isinstance(found, list) is bool(field.attrs), field.name
        if field.attrs:
            assert {*field.attrs, "value"} == set(found[0])


def test_a_mig_instance_has_its_placement() -> None:
    node, slice_ = Node(), mig(gpu(1), 7, 2)
    node.has(gpu(1), slice_)
    node.reads(reading(slice_, "memory_used_bytes", 1))
    (line,) = lines(node.snapshot())
    assert line["device"]["uuid"] == slice_.uuid
    assert line["device"]["mig"] == {
        "parent_uuid": gpu(1).uuid,
        "gpu_instance_id": 7,
        "compute_instance_id": 2,
        "profile": "1g.10gb",
    }


def test_an_unknown_compute_instance_id_is_left_out() -> None:
    node, place = Node(), MigPlace(gpu(1).uuid, 7, None, "1g.10gb")
    node.has(Device(place.name, mig=place))
    node.reads(reading(place.name, "memory_used_bytes", 1))
    (line,) = lines(node.snapshot())
    assert line["device"]["mig"] == {
        "parent_uuid": gpu(1).uuid,
        "gpu_instance_id": 7,
        "profile": "1g.10gb",
    }


def test_unknown_values_are_left_out() -> None:
    node = Node()
    node.has(Device("GPU-x"))
    node.reads(reading("GPU-x", "power_watts", 1))
    (line,) = lines(node.snapshot())
    assert line["device"] == {"uuid": "GPU-x"}
    assert line["holders"] == []
    holder = Holder(PartialRef(uid="u-1"), None, START, "gone", Evidence.PLUGIN_ANSWER)
    (line,) = lines(make_snapshot(reading("GPU-x", "power_watts", 1), holders=(holder,)))
    assert line["holders"] == [
        {
            "pod_uid": "u-1",
            "source": "gone",
            "evidence": "plugin_answer",
            "since": "2027-01-15T08:00:00.000000Z",
            "since_known": True,
        }
    ]


def test_a_holder_has_the_known_metadata_of_its_pod() -> None:
    pod = PodInfo(
        "u-1", "ml", "train", "Running", "Job", "train", "", (("team", "vision"),), (("a/b", "c"),)
    )
    holder = Holder(
        PartialRef("ml", "train", "main", "u-1"), None, START, "k", Evidence.KUBELET_IDS, pod
    )
    (line,) = lines(
        make_snapshot(reading("GPU-x", "power_watts", 1), holders=(holder,), conflicts=2)
    )
    (written,) = line["holders"]
    assert {name: written.get(name) for name in ("phase", "owner", "labels", "annotations")} == {
        "phase": "Running",
        "owner": {"kind": "Job", "name": "train"},
        "labels": {"team": "vision"},
        "annotations": {"a/b": "c"},
    }
    assert "qos_class" not in written
    assert line["conflicts"] == 2


def test_only_devices_with_fresh_readings_have_a_line() -> None:
    node = Node()
    node.has(gpu(0), gpu(1))
    node.reads(reading(gpu(0), "power_watts", 1), reading(gpu(1), "power_watts", 1))
    assert [line["device"]["index"] for line in lines(node.snapshot())] == [0, 1]
    node.reads(reading(gpu(1), "power_watts", 2))
    assert [line["device"]["index"] for line in lines(node.snapshot())] == [1]
    node.podlist(claim("new", gpu(0).uuid))
    assert lines(node.snapshot()) == []


def test_only_fields_of_the_plan_are_written() -> None:
    node = Node()
    node.has(gpu(0))
    node.reads(*every_field([gpu(0)]))
    (line,) = lines(node.snapshot(), FieldPlan(["power_watts"]))
    assert line["readings"] == {"power_watts": 1.5}
    node.reads(reading(gpu(0), "sm_clock_mhz", 1))
    assert lines(node.snapshot(), FieldPlan(["power_watts"])) == []


def test_a_new_holder_starts_at_age_0_and_the_age_of_a_holder_grows() -> None:
    node, encoder = Node(), LineEncoder("node-1", FieldPlan.everything())
    node.has(gpu(0))
    found = []
    for second, pod in enumerate(["one", "one", "two"]):
        node.seconds = float(second)
        if second != 1:
            node.podlist(claim(pod, gpu(0).uuid))
        node.reads(reading(gpu(0), "power_watts", second))
        (line,) = parsed(encoder.devices(node.snapshot()).lines[0])
        found += [(holder["pod"], holder["age_seconds"]) for holder in line["holders"]]
    assert found == [("one", 0), ("one", 1), ("two", 0)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (float("-inf"), None),
        (10**400, None),
        (2**53 + 1, b"9007199254740993"),
        (2**64, b"18446744073709551616"),
        (-(2**70), b"-1180591620717411303424"),
        (5e-324, b"5e-324"),
        (1.7976931348623157e308, b"1.7976931348623157e+308"),
    ],
)
def test_j4_numbers_are_exact_and_finite(value: float, expected: bytes | None) -> None:
    node, encoder = Node(), LineEncoder("node-1", FieldPlan.everything())
    node.has(gpu(0))
    node.reads(reading(gpu(0), "power_watts", value))
    batch = encoder.devices(node.snapshot())
    if expected is None:
        assert (batch.lines, batch.not_finite) == ([], 1)
    else:
        (line,) = batch.lines
        assert b'{"power_watts":' + expected + b"}" in line
        parsed(line)


def test_written_and_not_finite_readings_are_counted() -> None:
    node = Node()
    node.has(gpu(0), gpu(1))
    node.reads(
        *(reading(gpu(0), "xid_errors", n, attrs=(("xid", str(n)),)) for n in range(5)),
        reading(gpu(1), "power_watts", float("nan")),
        reading(gpu(1), "sm_clock_mhz", float("inf")),
        reading(gpu(1), "energy_millijoules", 10**400),
    )
    batch = LineEncoder("node-1", FieldPlan.everything()).devices(node.snapshot())
    assert (batch.readings, batch.not_finite) == ([5], 3)


def test_a_telemetry_line() -> None:
    own = Telemetry(families=OWN_FAMILIES)
    Meter(own, "sink", "out").add("podgpu_sink_emitted_total", 3)
    Meter(own, "source", "gpus").observe("podgpu_sample_duration_seconds", 0.5)
    computed = {"podgpu_inbox_depth": [Point((), float("nan"))]}
    line = LineEncoder("node-1", FieldPlan.everything()).telemetry(at(1.5), own.collect(computed))
    [found] = parsed(line)
    names = ["podgpu_sample_duration_seconds_count", "podgpu_sample_duration_seconds_sum"]
    assert sorted(found.pop("metrics"), key=itemgetter("name")) == [
        {"name": names[0], "labels": {"source": "gpus"}, "value": 1},
        {"name": names[1], "labels": {"source": "gpus"}, "value": 0.5},
        {"name": "podgpu_sink_emitted_total", "labels": {"sink": "out"}, "value": 3},
    ]
    assert found == {
        "record": "telemetry",
        "time": "2027-01-15T08:00:01.500000Z",
        "node": "node-1",
    }


HOSTILE = ['"', "\\", "a\nb", "\r\n", "\0", "🦙", "\ud83e", "x\udcffy", "\u2028", "</script>", "é"]


@pytest.mark.parametrize("text", HOSTILE)
def test_j4_hostile_names_are_escaped(text: str) -> None:
    holder = Holder(
        PartialRef(text, text, text, text), None, START, text, Evidence.SCHEDULER_ANNOTATION
    )
    device = replace(gpu(0), model=text, driver=text)
    sample = reading(gpu(0), "processes", 1, attrs=(("kind", text),))
    encoder = LineEncoder(text, FieldPlan.everything())
    batch = encoder.devices(make_snapshot(sample, device=device, holders=(holder,)))
    (line,) = parsed(b"".join(batch.lines))
    expected = text.replace("\ud83e", "\ufffd").replace("\udcff", "\ufffd")
    assert line["node"] == expected
    assert line["device"]["model"] == expected
    assert line["readings"]["processes"] == [{"kind": expected, "value": 1}]
    assert {line["holders"][0][key] for key in ("namespace", "pod", "container", "pod_uid")} == {
        expected
    }
    assert parsed(encoder.telemetry(START, [])) == [
        {"record": "telemetry", "time": rfc3339(START.wall_ns), "node": expected, "metrics": []}
    ]


def make_snapshot(
    *readings: Reading,
    device: Device | None = None,
    holders: tuple[Holder, ...] = (),
    conflicts: int = 0,
    when: Instant = START,
) -> Snapshot:
    """Return a snapshot without a join; its values can be inconsistent."""
    attribution = Attribution(
        device or Device(readings[0].device), True, holders, ("ml/other",) * conflicts
    )
    series = tuple(Series(one.field, one.attrs, attribution) for one in readings)
    return Snapshot(
        at=when,
        layout=Layout(series, {attribution.device.uuid: attribution}),
        readings=readings,
        fresh=tuple(range(len(readings))),
        sources={"s": SourceState("nvml", 0, confirmed_at=START)},
    )


texts = st.text(st.characters(codec=None), max_size=6)
instants = st.builds(Instant, st.integers(), st.integers())
names = st.sampled_from([field.name for field in CATALOGUE])
values = st.integers() | st.floats() | st.sampled_from([1 << 64, -(1 << 70), 10**350])


@given(
    st.lists(st.tuples(names, st.lists(st.tuples(texts, texts)).map(tuple), values), min_size=1),
    instants,
    texts,
    st.lists(
        st.builds(
            Holder,
            st.builds(PartialRef, texts, texts, texts, texts),
            st.none() | st.floats(),
            instants,
            st.sampled_from(["s", "t"]),
            st.sampled_from(Evidence),
        ),
        max_size=2,
    ).map(tuple),
)
@settings(max_examples=examples(40))
def test_j4_any_reading_results_in_strict_json(
    samples: list[tuple[str, Any, int | float]],
    when: Instant,
    text: str,
    holders: tuple[Holder, ...],
) -> None:
    readings = [
        Reading("GPU-0", name, attrs, value, None, when, NS) for name, attrs, value in samples
    ]
    device = Device("GPU-0", 0, 0, text, text, text)
    encoder = LineEncoder(text, FieldPlan.everything())
    batch = encoder.devices(make_snapshot(*readings, device=device, holders=holders, when=when))
    found = parsed(b"".join(batch.lines))
    assert sum(batch.readings) + batch.not_finite == len(samples)
    for line in found:
        assert line["time"].endswith("Z")
        assert len(line["holders"]) == len(holders)


@pytest.mark.parametrize(
    ("wall_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_796_000_000_123_456_789, "2026-11-30T00:53:20.123456Z"),
        (-5, "1970-01-01T00:00:00.000000Z"),
        (10**30, "9999-12-31T23:59:59.000000Z"),
    ],
)
def test_times_are_rfc_3339(wall_ns: int, text: str) -> None:
    assert rfc3339(wall_ns) == text


def test_example_lines_in_the_docs_have_the_real_structure() -> None:
    examples = documented_lines()
    assert examples.keys() == {"device", "telemetry", "holding", "xid_error"}
    device, telemetry = examples["device"], examples["telemetry"]
    node, slice_ = Node(), mig(gpu(0), 7)
    node.has(gpu(0), slice_)
    trainer_claim = replace(
        claim("trainer", slice_.uuid, share=0.5), subject=PartialRef("ml", "p", "c", "uid")
    )
    node.podlist(trainer_claim)
    node.seconds = 1.5
    node.reads(
        reading(slice_, "memory_used_bytes", 1),
        reading(slice_, "processes", 1, attrs=(("kind", "compute"),)),
    )
    (line,) = lines(node.snapshot())
    assert shape(device) == shape(line)
    own = Telemetry(families=OWN_FAMILIES)
    Meter(own, "sink", "out").add("podgpu_sink_emitted_total", 3)
    (line,) = parsed(
        LineEncoder("node-1", FieldPlan.everything()).telemetry(START, own.collect({}))
    )
    assert shape(telemetry) == shape(line)
