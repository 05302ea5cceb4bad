"""Since when a total counts: the same to the last digit after each restart."""

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
BEGUN = Instant(START.mono_ns + 123_456_789, START.wall_ns + 123_456_789)


def usage(until: Instant) -> DeviceUsage:
    had = used("a", start=BEGUN, held=NS, busy=NS, energy=5)
    return account(GPU, had, start=BEGUN, until=until, unheld=0, own_id="x")


def snapshot(given_out: DeviceUsage) -> Snapshot:
    node = Node()
    node.has(GPU)
    return replace(with_usage(node.snapshot(), given_out), at=given_out.at)


def starts(given_out: DeviceUsage) -> set[int]:
    """The starts of all totals of an account, as a podgpu tells them that has just begun."""
    found = points(Encoder("node-1", FieldPlan.everything()).encode(snapshot(given_out)))
    return {point.start for point in found if point.kind == "counter"}


def later(seconds: float, *, off: int) -> Instant:
    """A moment of a process whose wall clock is off by so many nanoseconds."""
    ns = round(seconds * NS)
    return Instant(BEGUN.mono_ns + ns, BEGUN.wall_ns + ns + off)


def after(given_out: DeviceUsage, now: Instant, boot: str) -> DeviceUsage:
    """The account after a restart, looked at a moment later."""
    [again] = to_current_clock(
        [load(GPU.uuid, dump(given_out))], now, {GPU.uuid: "boot"}, boot
    ).devices
    return replace(again, at=now)


@pytest.mark.parametrize("boot", ["boot", "another", ""])
def test_t12_a_total_has_the_same_start_after_each_restart(boot: str) -> None:
    """T12: what a process measures of the clocks differs from another's by some nanoseconds."""
    given_out = usage(later(10, off=0))
    assert starts(given_out) == {BEGUN.wall_ns}
    for number, off in enumerate((517, -498, 3, 90_000), 2):
        given_out = after(given_out, later(number * 10, off=off), boot)
        assert starts(given_out) == {BEGUN.wall_ns}


@pytest.mark.parametrize("step", [3600, -3600, 13 * 365 * 86_400])
def test_t8_a_start_fits_the_age_after_the_clock_was_set(step: int) -> None:
    """T8: whatever was done to the wall clock while podgpu was down; and it stays so from then."""
    given_out = after(usage(later(10, off=0)), later(20, off=step * NS), "boot")
    assert starts(given_out) == {given_out.at.wall_ns - 20 * NS}
    again = after(given_out, later(30, off=step * NS + 400), "boot")
    assert starts(again) == {BEGUN.wall_ns + step * NS}
