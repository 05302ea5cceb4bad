"""The start time of totals: exactly the same after each restart."""

from dataclasses import replace

import pytest

from pipeline.fields import FieldPlan
from pipeline.ledger.account_state import dump, load, to_current_clock
from pipeline.model import NS, DeviceUsage, Instant, Snapshot
from sinks.otlp.encoding.encoder import Encoder
from tests.sinks.otlp.encoding.support import points
from tests.support.nodes import START, Node, gpu
from tests.support.usage import account, used, with_usage

GPU = gpu(0)
CREATED = Instant(START.mono_ns + 123_456_789, START.wall_ns + 123_456_789)


def usage(until: Instant) -> DeviceUsage:
    container_usage = used("a", start=CREATED, held=NS, busy=NS, energy=5)
    return account(GPU, container_usage, start=CREATED, until=until, unheld=0, own_id="x")


def snapshot(current: DeviceUsage) -> Snapshot:
    node = Node()
    node.has(GPU)
    return replace(with_usage(node.snapshot(), current), at=current.at)


def starts(current: DeviceUsage) -> set[int]:
    """Return the start times of all totals that a new encoder sends for an account."""
    found = points(Encoder("node-1", FieldPlan.everything()).encode(snapshot(current)))
    return {point.start for point in found if point.kind == "counter"}


def later(seconds: float, *, off: int) -> Instant:
    """Return a time of a process whose wall clock differs by `off` nanoseconds."""
    ns = round(seconds * NS)
    return Instant(CREATED.mono_ns + ns, CREATED.wall_ns + ns + off)


def after(current: DeviceUsage, now: Instant, boot: str) -> DeviceUsage:
    """Return the account after a restart, sampled at `now`."""
    [again] = to_current_clock(
        [load(GPU.uuid, dump(current))], now, {GPU.uuid: "boot"}, boot
    ).devices
    return replace(again, at=now)


@pytest.mark.parametrize("boot", ["boot", "another", ""])
def test_t12_a_total_has_the_same_start_after_each_restart(boot: str) -> None:
    """T12: the clock offset that a process measures differs by some nanoseconds each time."""
    current = usage(later(10, off=0))
    assert starts(current) == {CREATED.wall_ns}
    for number, off in enumerate((517, -498, 3, 90_000), 2):
        current = after(current, later(number * 10, off=off), boot)
        assert starts(current) == {CREATED.wall_ns}


@pytest.mark.parametrize("step", [3600, -3600, 13 * 365 * 86_400])
def test_t8_a_start_keeps_its_age_after_the_wall_clock_was_set(step: int) -> None:
    """T8: the wall clock was set while podgpu was down; later restarts keep the start."""
    current = after(usage(later(10, off=0)), later(20, off=step * NS), "boot")
    assert starts(current) == {current.at.wall_ns - 20 * NS}
    again = after(current, later(30, off=step * NS + 400), "boot")
    assert starts(again) == {CREATED.wall_ns + step * NS}
