"""Counts over a sliding window: the class, and the fields that the source reports."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.value_types import Duration
from pipeline.fields import FieldPlan
from pipeline.model import NS, Instant, Reading, SamplesTaken
from sources.nvml.event_counts import REASONS, ClockEventStarts, SlidingCounts, XidCounts
from tests.fakes.nvml import FakeNvml, h100s
from tests.sources.nvml.harness import GPU, next_rounds, options, running, until, values
from tests.support.contexts import FakeSourceContext

MINUTE = 60 * NS


def at(ns: int) -> Instant:
    return Instant(ns, ns)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2 * MINUTE)), max_size=50))
def test_a_window_counts_the_events_within_it(steps: list[tuple[int, int]]) -> None:
    window: SlidingCounts[int] = SlidingCounts(MINUTE)
    events: list[tuple[int, int]] = []
    now = 0
    for key, gap in steps:
        now += gap
        window.add(key, at(now))
        events.append((key, now))
    counts = window.counts(at(now))
    at_most = Counter(key for key, when in events if when > now - MINUTE)
    # Events near the start of the window, within a thousandth of it, may have been dropped.
    at_least = Counter(key for key, when in events if when > now - MINUTE + MINUTE // 1000)
    assert all(at_least[key] <= counts.get(key, 0) <= at_most[key] for key in range(4))


@pytest.mark.slow
def test_the_memory_of_a_window_is_bounded() -> None:
    window: SlidingCounts[int] = SlidingCounts(MINUTE)
    for step in range(100_000):
        window.add(79, at(step * MINUTE // 20_000))
    assert len(window._parts) <= 1001
    assert 19_900 <= window.counts(at(100_000 * MINUTE // 20_000))[79] <= 20_000


def recent(counts: XidCounts, when: int) -> list[tuple[dict[str, str], float]]:
    readings = counts.readings([GPU[0]], {"xid_errors_in_window"}, at(when), NS)
    return [(dict(reading.attrs), reading.value) for reading in readings]


def test_xids_within_the_window_are_counted_by_code() -> None:
    counts = XidCounts()
    counts.configure((), 5 * MINUTE)
    counts.start_watching(GPU[0], at(0))
    size = {"window_size_in_ms": "300000"}
    assert recent(counts, 0) == [(size, 0)], "one series without a code before the first error"
    for code, when in ((79, 1), (79, 2), (31, 3)):
        counts.add(GPU[0], code, at(when * MINUTE))
    assert recent(counts, 3 * MINUTE) == [({**size, "xid": "31"}, 1), ({**size, "xid": "79"}, 2)]
    assert recent(counts, 7 * MINUTE) == [({**size, "xid": "31"}, 1), ({**size, "xid": "79"}, 0)]
    assert recent(counts, 9 * MINUTE) == [({**size, "xid": "31"}, 0), ({**size, "xid": "79"}, 0)]
    counts.configure((), 1 * MINUTE)
    size = {"window_size_in_ms": "60000"}
    assert recent(counts, 9 * MINUTE) == [({**size, "xid": "31"}, 0), ({**size, "xid": "79"}, 0)]


def test_a_gpu_that_is_not_watched_has_no_counts() -> None:
    counts = XidCounts()
    counts.configure((), MINUTE)
    assert recent(counts, 0) == []


@pytest.mark.slow
async def test_an_xid_is_counted_immediately_and_leaves_the_window(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["xid_errors_in_window", "gpu_up"])

    def last() -> dict[str, float]:
        readings: list[Reading] = []
        for event in ctx.events:
            if isinstance(event, SamplesTaken):
                readings = [r for r in event.readings if r.field != "gpu_up"] or readings
        return {
            ",".join(value for _, value in reading.attrs): reading.value for reading in readings
        }

    async with running(ctx, options(interval=0.1, slow=0.2, xid_window=Duration(1))):
        await until(lambda: last() == {"1000": 0})
        fake_nvml.push_xid(0, 79)
        await until(lambda: last() == {"1000,79": 1})
        await until(lambda: last() == {"1000,79": 0})


@pytest.mark.slow
async def test_clock_events_count_the_rounds_that_had_them(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["clock_events_in_window", "gpu_up"])
    idle, capped = (
        f"clock_events_in_window{{{event},60000}}" for event in ("gpu_idle", "power_cap")
    )
    fake_nvml.set(h100s(1, values={"clocks_event_reasons": 0x1}))
    async with running(ctx, options(clock_events_window=Duration(60))):
        await next_rounds(ctx, 3)
        fake_nvml.set(h100s(1, values={"clocks_event_reasons": 0x5}))
        await next_rounds(ctx, 3)
    counts = [
        (found[idle], found[capped])
        for event in ctx.events
        if isinstance(event, SamplesTaken) and idle in (found := values(event, GPU[0]))
    ]
    assert [both[0] for both in counts] == list(range(1, len(counts) + 1))
    assert [both[1] for both in counts] == sorted(both[1] for both in counts)
    assert 2 <= counts[-1][1] < counts[-1][0]
    assert "clock_throttle_active" not in {
        r.field for e in ctx.events if isinstance(e, SamplesTaken) for r in e.readings
    }


@pytest.mark.parametrize("supported", [0x5, 0x1FF])
async def test_clock_events_that_never_occurred_have_the_count_0(
    fake_nvml: FakeNvml, supported: int
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["clock_events_in_window", "gpu_up"])
    settings = {"clocks_event_reasons": 0x1, "supported_clocks_event_reasons": supported}
    fake_nvml.set(h100s(1, values=settings))
    async with running(ctx, options()):
        found = values(await next_rounds(ctx, 2), GPU[0])
    assert len(found) - 1 == supported.bit_count(), "the events that the card supports"
    assert sorted(found.values())[:-2] == [0] * (supported.bit_count() - 1)


@pytest.mark.slow
async def test_counts_continue_over_a_reload_unless_the_window_changes(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["clock_events_in_window", "gpu_up"])
    fake_nvml.set(h100s(1, values={"clocks_event_reasons": 0x1}))
    last = []
    for window, interval in ((60, 0.1), (60, 0.2), (90, 0.1)):
        name = f"clock_events_in_window{{gpu_idle,{window * 1000}}}"
        settings = options(interval=interval, clock_events_window=Duration(window))
        async with running(ctx, settings):
            last.append(values(await next_rounds(ctx, 3), GPU[0])[name])
    assert last[0] < last[1]
    assert last[2] < last[1]
    assert all(count >= 1 for count in itertools.chain(last))


def test_error_counts_start_when_the_gpu_is_first_watched() -> None:
    counts = XidCounts()
    counts.configure((31,), MINUTE)
    counts.start_watching(GPU[0], at(7))
    counts.add(GPU[0], 79, at(60))
    counts.start_watching(GPU[0], at(90))  # the driver was reloaded; podgpu's count continues
    readings = counts.readings([GPU[0]], {"xid_errors"}, at(99), NS)
    assert [(reading.value, reading.window_start) for reading in readings] == [
        (0, at(7)),
        (1, at(7)),
    ]


IDLE, CAPPED = 0x1, 0x4


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ([IDLE], {}),
        ([0, IDLE], {IDLE: 1}),
        ([IDLE, IDLE], {}),
        ([IDLE, IDLE | CAPPED], {CAPPED: 1}),
        ([IDLE | CAPPED, CAPPED], {}),
        ([CAPPED, IDLE | CAPPED], {IDLE: 1}),
        ([IDLE, 0, IDLE, 0, IDLE], {IDLE: 2}),
        ([0, IDLE | CAPPED, 0, CAPPED], {IDLE: 1, CAPPED: 2}),
    ],
)
def test_a_clock_event_counts_when_it_starts(masks: list[int], expected: dict[int, int]) -> None:
    """The first sample only shows which events are active: when they started is not known."""
    starts = ClockEventStarts()
    found = [starts.add("a", mask, at(second)) for second, mask in enumerate(masks)]
    assert {since for since, _ in found} == {at(0)}
    _, counts = found[-1]
    assert {bit: count for bit, count in counts.items() if count} == expected
    assert counts.keys() == REASONS.keys()
    starts.forget("a")
    assert starts.add("a", IDLE, at(99)) == (at(99), dict.fromkeys(REASONS, 0))


async def test_starts_of_clock_events_are_counted_over_reloads_and_new_windows(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["clock_events", "gpu_up"])
    found: dict[str, float] = {}
    for mask, window in ((IDLE, 60), (IDLE | CAPPED, 60), (IDLE, 60), (CAPPED, 90)):
        fake_nvml.set(h100s(1, values={"clocks_event_reasons": mask}))
        async with running(ctx, options(clock_events_window=Duration(window))):
            found = values(await next_rounds(ctx, 2), GPU[0])
    assert found["clock_events{power_cap}"] == 2
    assert found["clock_events{gpu_idle}"] == 0
