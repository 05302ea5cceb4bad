"""Times in lines after the wall clock was set (T8)."""

import json
from dataclasses import replace

import pytest

from pipeline.fields import FieldPlan
from pipeline.model import NS, Instant, Snapshot
from sinks.jsonl.event_lines import holding_line
from sinks.jsonl.json_values import rfc3339
from sinks.jsonl.line_encoder import LineEncoder
from tests.support.nodes import Node, at, claim, gpu, reading
from tests.support.usage import holding

STEPS = [3600, -3600, 12 * 366 * 86_400]


def snapshot_after_step(step: float) -> Snapshot:
    """Return a snapshot at second 12 with a holder since second 2, after the wall clock was set."""
    node = Node()
    node.has(gpu(0))
    node.seconds = 2
    node.podlist(claim("a", gpu(0).uuid))
    node.seconds = 12
    node.reads(reading(gpu(0), "power_watts", 70))
    found, now = node.snapshot(), at(12)
    return replace(found, at=Instant(now.mono_ns, now.wall_ns + round(step * NS)))


@pytest.mark.parametrize("step", STEPS)
def test_t8_start_and_end_of_a_holding_use_the_current_wall_clock(step: float) -> None:
    """T8: start and end use the current wall clock; their distance is counted time plus gaps."""
    snapshot = snapshot_after_step(step)
    one = holding("a", gpu(0), start=at(2), end=at(11), gap=NS)
    line = json.loads(holding_line("node-1", one, snapshot))
    wall = snapshot.at.wall_ns
    assert (line["start"], line["end"]) == (rfc3339(wall - 10 * NS), rfc3339(wall - NS))
    assert line["time"] == line["end"]
    assert line["counted_nanoseconds"] + line["gap_nanoseconds"] == 9 * NS


@pytest.mark.parametrize("step", STEPS)
def test_t8_since_of_a_holder_moves_with_the_wall_clock(step: float) -> None:
    """T8: `since` of a holder is not in the future when the clock was set back."""
    snapshot = snapshot_after_step(step)
    wall = snapshot.at.wall_ns
    [line] = LineEncoder("node-1", FieldPlan.everything()).devices(snapshot).lines
    [holder] = json.loads(line)["holders"]
    assert holder["since"] == rfc3339(wall - 10 * NS)
    assert json.loads(line)["time"] == rfc3339(wall - 12 * NS), "the time of the reading"
