"""For any events on a node, the encoder has the same results as a slow, simple encoder."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fields import FieldPlan
from pipeline.model import NS, Attrs, Instant, PodInfo, SourceRemoved, Value
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.options import Names, Temporality
from tests.sinks.otlp.encoding.reference import Reference
from tests.sinks.otlp.encoding.support import Point, held, pods, points
from tests.support.examples import examples
from tests.support.nodes import Node, at, claim, gpu, mig, reading

GPUS = [gpu(0), replace(gpu(1), minor=None, index=None, facts=(("serial", "165"),)), gpu(2)]
DEVICES = [*GPUS, mig(GPUS[1], 1), mig(GPUS[1], 2)]
FIELDS: list[tuple[str, Attrs]] = [
    ("power_watts", ()),
    ("energy_millijoules", ()),
    ("gpu_utilization_percent", ()),
    ("graphics_engine_active_ratio", ()),
    ("memory_used_bytes", ()),
    ("memory_total_bytes", ()),
    ("memory_free_bytes", ()),
    ("row_remap_pending", ()),
    ("row_remap_failed", ()),
    ("recovery_action", ()),
    ("gpu_up", ()),
    ("pcie_replays", ()),
    ("xid_errors", (("xid", "79"),)),
    ("xid_errors", (("xid", "13"),)),
    ("processes", (("hw.id", "x"), ("kind", "compute"))),
    ("processes", (("hw.id", "x" * 1030 + "y"),)),
    ("processes", (("hw.id", "x" * 1030 + "z"),)),
    ("sm_clock_mhz", ()),
]
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.integers(0, 5),
    st.integers(),
    st.floats(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1, 10**400, 1e308]),
)
READ = st.tuples(
    st.just("read"),
    st.lists(
        st.tuples(st.sampled_from(DEVICES), st.sampled_from(FIELDS), VALUES),
        min_size=1,
        max_size=12,
    ),
)
HOLD = st.tuples(
    st.just("hold"),
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from(DEVICES),
            st.sampled_from(["main", "side"]),
            st.sampled_from([None, 0.5]),
        ),
        max_size=4,
    ),
)
HAVE = st.tuples(st.just("have"), st.lists(st.sampled_from(DEVICES), unique=True))
LABEL = st.tuples(st.just("label"), st.sampled_from(["", "web", "db"]))
SET = st.tuples(st.just("set"), st.integers(-3, 3))
LOSE = st.tuples(st.just("lose"), st.none())
STEPS = st.lists(st.one_of(READ, READ, READ, HOLD, HAVE, LABEL, SET, LOSE), max_size=14)


def ordered(found: Sequence[Point]) -> list[Point]:
    return sorted(found, key=lambda point: (not point.ended, repr(point.identity), point.time))


@pytest.mark.parametrize("names", ["semconv", "dcgm"])
@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
@given(STEPS, st.booleans(), st.sampled_from([100, 5_000, 1 << 19]))
@settings(deadline=None, max_examples=examples(60))
def test_the_encoder_equals_the_reference_encoder(
    names: Names,
    temporality: Temporality,
    steps: list[tuple[str, object]],
    containers: bool,
    most_bytes: int,
) -> None:
    plan = FieldPlan({name for name, _ in FIELDS} - {"sm_clock_mhz"})
    encoder = Encoder(
        "node-1",
        plan,
        names=names,
        containers=containers,
        temporality=temporality,
        most_bytes=most_bytes,
    )
    reference = Reference("node-1", plan, names, containers=containers, temporality=temporality)
    node = Node()
    node.has(*DEVICES)
    wall_offset = 0
    for kind, argument in steps:
        node.seconds += 1
        match kind, argument:
            case "read", list(values):
                now = at(node.seconds)
                node.reads(
                    *(
                        reading(device, field, value, attrs=attrs, when=now, good_for=4)
                        for device, (field, attrs), value in values
                    )
                )
            case "hold", list(holders):
                held(
                    node,
                    *(
                        claim(pod, device.uuid, container=container, share=share)
                        for pod, device, container, share in holders
                    ),
                )
            case "have", list(devices):
                node.has(*devices)
            case "label", str(name):
                label = (("app.kubernetes.io/name", name),)
                pods(node, PodInfo("u-a", "ml", "a", owner_kind="Job", labels=label))
            case "set", int(seconds):
                wall_offset += seconds * NS
            case _:
                node.say(SourceRemoved(), "podlist", "podlist")
        snapshot = node.snapshot()
        snapshot = replace(
            snapshot, at=Instant(snapshot.at.mono_ns, snapshot.at.wall_ns + wall_offset)
        )
        records = encoder.encode(snapshot)
        found = points(records)
        assert ordered(found) == ordered(reference.encode(snapshot))
        concatenated = b"".join(record.data for record in records)
        if concatenated:  # concatenated records are one valid request
            whole = replace(records[0], data=concatenated, points=len(found))
            assert ordered(points([whole])) == ordered(found)
        assert all(record.created_ns == snapshot.at.wall_ns for record in records)
        assert encoder.not_finite == reference.not_finite
        assert encoder.duplicates == reference.duplicates
        assert encoder.timeline.steps == reference.timeline.steps
