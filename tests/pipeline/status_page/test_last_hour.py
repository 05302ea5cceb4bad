"""The ring of the last hour: bounded, in the order of time, independent of the wall clock."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import NS, Instant, Snapshot
from pipeline.status_page import last_hour
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.last_hour import POINTS, STEP_NS, HourOfDevice, LastHour
from tests.pipeline.status_page.scenes import status_input, two_gpus
from tests.support.examples import examples
from tests.support.nodes import Node, gpu, mig, reading, uuid_of

STEP = STEP_NS // NS
HOUR = STEP * POINTS
BEGIN = 100 * HOUR


def snapshot(seconds: float, *values: float, wall: float = 0.0) -> Snapshot:
    """Return a snapshot in which the GPUs have this utilisation.

    Args:
        seconds: time of the monotonic clock.
        values: utilisation of each GPU.
        wall: time of the wall clock.
    """
    node = Node()
    node.has(*(gpu(index) for index in range(len(values))))
    readings = [
        reading(gpu(index), "gpu_utilization_percent", value) for index, value in enumerate(values)
    ]
    node.reads(*readings)
    return replace(node.snapshot(), at=Instant(round(seconds * NS), round(wall * NS)))


def hour(*snapshots: Snapshot) -> HourOfDevice:
    ring = LastHour()
    for each in snapshots:
        ring.add(each)
    return ring.hours()[uuid_of(0)]


def test_a_point_is_the_mean_of_its_step() -> None:
    times = ((0, 10.0), (10, 20.0), (29, 60.0), (30, 5.0))
    found = hour(*(snapshot(BEGIN + at, value) for at, value in times))
    assert found.utilization_percent == (30.0, 5.0)


def test_the_first_snapshot_is_shown_at_once() -> None:
    assert hour(snapshot(BEGIN + 3, 42.0)).utilization_percent == (42.0,)


def test_steps_without_a_reading_are_unknown_and_not_0() -> None:
    found = hour(snapshot(BEGIN, 10.0), snapshot(BEGIN + 3 * STEP, 0.0))
    assert found.utilization_percent == (10.0, None, None, 0.0)
    assert found.power_watts == (None,) * 4


def test_after_an_hour_the_oldest_points_are_replaced() -> None:
    found = hour(*(snapshot(BEGIN + n * STEP, float(n)) for n in range(POINTS + 5)))
    assert found.utilization_percent == tuple(float(n) for n in range(5, POINTS + 5))


@pytest.mark.parametrize("gap", [POINTS - 1, POINTS, POINTS + 1, 10 * POINTS])
def test_after_a_long_gap_no_old_point_is_shown(gap: int) -> None:
    found = hour(
        *(snapshot(BEGIN + n * STEP, 9.0) for n in range(POINTS)),
        snapshot(BEGIN + (POINTS + gap) * STEP, 1.0),
    )
    assert found.utilization_percent == (None,) * (POINTS - 1) + (1.0,)


def with_an_instance() -> Snapshot:
    """Return a snapshot of a GPU with an instance, both without utilisation."""
    node, part = Node(), mig(gpu(0), 7)
    node.has(gpu(0), part)
    node.reads(
        reading(part, "graphics_engine_active_ratio", 0.75),
        reading(part, "memory_used_bytes", 7),
        reading(gpu(0), "graphics_engine_active_ratio", 0.25),
        reading(gpu(0), "power_watts", 300),
    )
    return node.snapshot()


def test_a_device_that_has_no_utilisation_shows_how_busy_its_engine_is() -> None:
    ring = LastHour()
    ring.add(with_an_instance())
    found = ring.hours()
    assert found[uuid_of(0)] == HourOfDevice((25.0,), (None,), (300.0,))
    assert found[mig(gpu(0), 7).uuid] == HourOfDevice((75.0,), (7.0,), None)


def test_a_gpu_gets_a_ring_before_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_hour, "MOST_RINGS", 1)
    ring = LastHour()
    ring.add(with_an_instance())
    assert list(ring.hours()) == [uuid_of(0)]


def test_an_instance_that_is_removed_has_no_ring() -> None:
    ring = LastHour()
    ring.add(with_an_instance())
    ring.add(snapshot(BEGIN, 1.0))
    assert list(ring.hours()) == [uuid_of(0)]


def test_a_gpu_that_is_not_known_any_more_has_no_ring() -> None:
    ring = LastHour()
    ring.add(snapshot(BEGIN, 1.0, 2.0))
    ring.add(snapshot(BEGIN + 1, 1.0))
    assert list(ring.hours()) == [uuid_of(0)]


def test_the_number_of_rings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_hour, "MOST_RINGS", 2)
    ring = LastHour()
    ring.add(snapshot(BEGIN, 1.0, 2.0, 3.0))
    assert list(ring.hours()) == [uuid_of(0), uuid_of(1)]


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan")])
def test_impossible_values_are_left_out(value: float) -> None:
    found = hour(snapshot(BEGIN, 5.0), snapshot(BEGIN + 1, value))
    assert found.utilization_percent == (5.0,)


@settings(deadline=None, max_examples=examples(100))
@given(
    st.lists(
        st.tuples(st.floats(0, 3 * HOUR), st.floats(-(10**9), 10**9), st.integers(0, 100)),
        min_size=1,
        max_size=40,
    )
)
def test_the_ring_is_the_history_of_the_monotonic_clock(
    reports: list[tuple[float, float, int]],
) -> None:
    """However the wall clock jumps, each value is the mean of the snapshots in its step."""
    ring = LastHour()
    expected: dict[int, list[int]] = {}
    newest = -1
    for seconds, wall, value in reports:
        made = snapshot(BEGIN + seconds, float(value), wall=wall)
        ring.add(made)
        step = made.at.mono_ns // STEP_NS
        # A snapshot that is older than the newest step is ignored.
        if step >= newest:
            newest = step
            expected.setdefault(step, []).append(value)
    first = max(min(expected), newest - POINTS + 1)
    found = ring.hours()[uuid_of(0)].utilization_percent
    assert len(found) == newest - first + 1 <= POINTS
    for step, shown in zip(range(first, newest + 1), found, strict=True):
        values = expected.get(step)
        wanted = None if values is None else pytest.approx(sum(values) / len(values))
        assert shown == wanted


def test_the_document_has_the_last_hour_of_each_gpu() -> None:
    [busy, idle] = status_of(two_gpus()).gpus or ()
    assert busy.history is not None
    assert busy.history.step_seconds == 30
    assert busy.history.utilization_percent == (93,)
    assert busy.history.memory_used_bytes == (40 << 30,)
    assert busy.history.power_watts == (385,)
    assert idle.history is not None
    assert idle.history.utilization_percent == (0,)


def test_without_readings_there_is_no_history() -> None:
    node = Node()
    node.has(gpu(0))
    [found] = status_of(status_input(node)).gpus or ()
    assert found.history is None
