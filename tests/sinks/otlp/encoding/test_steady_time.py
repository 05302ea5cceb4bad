"""Times of points never go back, even if the wall clock does."""

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fields import FieldPlan
from pipeline.model import NS, Instant
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.encoding.steady_time import PointOrder, WallTimeline
from tests.sinks.otlp.encoding.support import points, shifted
from tests.support.examples import examples
from tests.support.nodes import START, Node, at, claim, gpu, reading

HOUR = 3600 * NS

CLOCKS = st.lists(
    st.tuples(
        st.integers(1, 60 * NS),  # time that passes
        st.one_of(  # how much the wall clock is set in it
            st.just(0),
            st.integers(-NS // 1000, NS // 1000),
            st.integers(-2 * HOUR, 2 * HOUR),
        ),
    ),
    max_size=40,
)


ANY = st.one_of(st.integers(), st.integers(-(1 << 80), 1 << 80))


@given(st.lists(st.builds(Instant, ANY, ANY), min_size=1, max_size=5), st.lists(ANY, max_size=5))
def test_r4_any_clock_value_results_in_a_valid_time(
    instants: list[Instant], moments: list[int]
) -> None:
    """A damaged recording may contain any time."""
    timeline = WallTimeline()
    order = PointOrder(timeline)
    for moment in instants:
        timeline.update(moment)
        order.next_message()
        for mono_ns in (*moments, *(each.mono_ns for each in instants)):
            for time in (timeline(mono_ns), timeline.start(moment), order(mono_ns)):
                assert 0 <= time < 1 << 64


@given(CLOCKS, st.data())
@settings(deadline=None)
def test_c2_a_later_moment_never_has_an_earlier_time(
    clocks: list[tuple[int, int]], data: st.DataObject
) -> None:
    timeline = WallTimeline()
    mono, wall = START.mono_ns, START.wall_ns
    times: list[tuple[int, int]] = []
    timeline.update(START)
    for passed, step in clocks:
        mono, wall = mono + passed, wall + passed + step
        timeline.update(Instant(mono, wall))
        # Readings arrive late and in any order.
        delays = data.draw(st.lists(st.integers(0, 90 * NS), max_size=3))
        times += [(mono - delay, timeline(mono - delay)) for delay in (*delays, 0)]
    times.sort()
    for (_, before), (_, after) in pairwise(times):
        assert before <= after
    for moment, time in times:  # the time of a moment never changes
        assert times[bisect_left(times, (moment, 0))][1] == time


@pytest.mark.parametrize(
    ("step", "steps"),
    [(HOUR, 1), (-HOUR, 1), (NS * 6 // 10, 1), (NS * 4 // 10, 0), (-NS * 4 // 10, 0), (0, 0)],
)
def test_c2_steps_of_the_wall_clock_are_counted_once(step: int, steps: int) -> None:
    timeline = WallTimeline()
    for second in range(20):
        now = at(second)
        timeline.update(Instant(now.mono_ns, now.wall_ns + (step if second > 9 else 0)))
    assert timeline.steps == steps


def test_c2_a_step_forward_is_followed_immediately() -> None:
    timeline = WallTimeline()
    timeline.update(START)
    later = Instant(START.mono_ns + NS, START.wall_ns + HOUR + NS)
    timeline.update(later)
    assert timeline(later.mono_ns) == later.wall_ns
    # A reading just before the snapshot also has a time of the new clock.
    assert timeline(later.mono_ns - NS // 2) == later.wall_ns - NS // 2
    assert timeline(START.mono_ns) == START.wall_ns


def test_c2_after_a_step_back_the_times_run_slower_until_they_agree() -> None:
    timeline = WallTimeline()
    timeline.update(START)
    offset = -10 * NS
    times = []
    for second in range(1, 121):
        now = Instant(START.mono_ns + second * NS, START.wall_ns + second * NS + offset)
        timeline.update(now)
        times.append((timeline(now.mono_ns), now.wall_ns))
    ahead = [time - wall for time, wall in times]
    assert all(after - before == NS * 9 // 10 for (before, _), (after, _) in pairwise(times[:99]))
    assert ahead[98] > 0
    assert ahead[99:] == [0] * 21  # 10 s take 100 s


def test_c2_a_slewed_clock_is_not_a_step() -> None:
    timeline = WallTimeline()
    for minute in range(600):
        slewed = minute * 60 * NS // 2000  # 500 ppm, the maximum of Linux
        moment = at(minute * 60)
        timeline.update(Instant(moment.mono_ns, moment.wall_ns + slewed))
    assert timeline.steps == 0


@given(CLOCKS)
@settings(deadline=None)
def test_c2_no_point_is_missing_repeated_or_goes_back_in_time(
    clocks: list[tuple[int, int]],
) -> None:
    node = Node()
    node.has(gpu(0))
    encoder = Encoder("node-1", FieldPlan(["power_watts", "energy_millijoules"]))
    times: list[int] = []
    wall = 0
    for count, (passed, step) in enumerate(clocks, 1):
        node.seconds += max(passed, NS // 10) / NS
        wall += step
        now = at(node.seconds)
        node.reads(
            reading(gpu(0), "power_watts", count, when=now, good_for=100),
            reading(gpu(0), "energy_millijoules", count, when=now, good_for=100),
        )
        found = points(encoder.encode(shifted(node.snapshot(), wall)))
        assert [point.value for point in found] == [count, count / 1000]
        assert {point.ended for point in found} == {False}
        times.append(found[0].time)
        assert found[1].time == found[0].time >= found[1].start
    assert all(before < after for before, after in pairwise(times))


MOMENTS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 99), st.sampled_from(["a", "b", ""])),
    min_size=2,
    max_size=20,
)
"""Milliseconds to the next snapshot, the age of its reading in milliseconds, and the holder."""


@given(MOMENTS)
@settings(deadline=None, max_examples=examples(50))
def test_times_of_messages_never_go_back_for_any_resource(
    moments: list[tuple[int, int, str]],
) -> None:
    """Prometheus would refuse the whole message: each resource has its own series there."""
    node = Node()
    devices = [gpu(0), gpu(1)]
    node.has(*devices)
    encoder = Encoder("node-1", FieldPlan(["power_watts", "energy_millijoules"]))
    last = 0
    for count, (passed, age, pod) in enumerate(moments):
        node.seconds += passed / 1000
        node.podlist(*([claim(pod, devices[0].uuid)] if pod else []))
        # The readers of the devices report one after another.
        read = at(node.seconds - age / 1000)
        node.reads(reading(devices[count % 2], "power_watts", count, when=read, good_for=9))
        for record in encoder.encode(node.snapshot()):
            times = [point.time for point in points([record])]
            assert min(times) >= last
            last = max(last, *times)
        assert last - at(node.seconds).wall_ns <= NS // 10


def test_a_reading_from_long_before_the_last_message_keeps_its_time() -> None:
    timeline = WallTimeline()
    order = PointOrder(timeline)
    timeline.update(at(0))
    timeline.update(at(10))
    order.next_message()
    assert order(at(10).mono_ns) == at(10).wall_ns
    order.next_message()
    assert order(at(9.95).mono_ns) == at(10.001).wall_ns
    assert order(at(9).mono_ns) == at(9).wall_ns
    end = order.end()
    assert end == at(10.001).wall_ns
    assert order(at(10).mono_ns) == at(10.002).wall_ns, "a point after an end is later"


@pytest.mark.parametrize("suspended", [True, False])
def test_c3_a_pause_of_five_minutes_is_a_gap_in_the_times(suspended: bool) -> None:
    """With and without a suspend, in which the monotonic clock stops."""
    node = Node()
    node.has(gpu(0))
    encoder = Encoder("node-1", FieldPlan(["power_watts"]))
    times = []
    wall = 0
    for second in (1, 2, 3, 4, 5, 6):
        if second == 4:
            if suspended:
                wall = 300 * NS
            else:
                node.seconds += 300
        node.seconds += 1
        node.reads(reading(gpu(0), "power_watts", 70.5, when=at(node.seconds), good_for=900))
        (point,) = points(encoder.encode(shifted(node.snapshot(), wall)))
        times.append(point.time - START.wall_ns)
    assert times == [NS * second for second in (1, 2, 3, 304, 305, 306)]
    assert encoder.timeline.steps == suspended


def test_late_readings_keep_their_time_for_a_thousand_snapshots() -> None:
    timeline = WallTimeline()
    for second in range(1500):
        timeline.update(at(second))
    for back in (0, 1, 500, 1023, 1024, 1400):
        moment = at(1499 - back)
        assert timeline(moment.mono_ns) == moment.wall_ns
    assert timeline(at(1600).mono_ns) == at(1499).wall_ns
