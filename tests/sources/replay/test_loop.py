"""A loop plays a recording as one node that continues: counters, accounts and starts."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fields import CATALOGUE
from pipeline.join import Join
from pipeline.model import (
    NS,
    ClaimsReplaced,
    DevicesDiscovered,
    DeviceUse,
    Envelope,
    Event,
    Instant,
    PartialRef,
    ProcessesSampled,
    ProcessUse,
    Reading,
    SamplesTaken,
    Value,
    XidReport,
    XidsReported,
)
from sources.replay import continuation
from sources.replay.continuation import Continuation
from sources.replay.options import DEMO, recording_path
from sources.replay.recording_pass import ReplayPass
from tests.sources.replay.playing import Recorded, play_for, record
from tests.support.examples import examples
from tests.support.nodes import START, at, claim, claims, gpu, reading

PASSES: Final = 3
LENGTH: Final = 40
"""Seconds of the recordings of this file."""

_COUNTERS: Final = {field.name for field in CATALOGUE if field.type == "counter"}
ENERGY: Final = "energy_millijoules"


def later(began: Instant, recorded: Instant) -> Instant:
    """Return a recorded instant, moved to a pass that began at `began`."""
    apart = began.mono_ns - START.mono_ns
    return Instant(recorded.mono_ns + apart, recorded.wall_ns + apart)


def played(
    values: Sequence[Value], field: str = ENERGY, window_start: Instant | None = None
) -> list[Reading]:
    """Return the readings of several passes through a recording with these values."""
    kept, found = Continuation(), list[Reading]()
    for number in range(PASSES):
        began = at(1000 + number * LENGTH)
        kept.begin_pass(START, began)
        for second, value in enumerate(values):
            recorded = reading(gpu(0), field, value, when=at(second))
            recorded = recorded._replace(window_start=window_start)
            moved = recorded._replace(at=later(began, recorded.at))
            if window_start is not None:
                moved = moved._replace(window_start=later(began, window_start))
            event = kept.continued("gpus", SamplesTaken((recorded,)), SamplesTaken((moved,)))
            assert isinstance(event, SamplesTaken)
            found += event.readings
    return found


def increase(values: Iterable[Value]) -> Value:
    """Return the increase as Prometheus calculates it: after a decrease, a counter began at 0."""
    return sum(b - a if b >= a else b for a, b in pairwise(values))


@pytest.mark.parametrize(
    ("field", "since", "recorded", "expected"),
    [
        (ENERGY, None, [100, 110, 120], [100, 110, 120, 120, 130, 140, 140, 150, 160]),
        (ENERGY, None, [100, 120, 5, 9], [100, 120, 5, 9, 9, 29, 5, 9, 9, 29, 5, 9]),
        (ENERGY, -50, [100, 110], [100, 110, 110, 120, 120, 130]),
        (ENERGY, None, [7], [7, 7, 7]),
        ("xid_errors", 0.1, [0, 1], [0, 1, 1, 2, 2, 3]),
        ("xid_errors", 0.1, [1, 2], [1, 2, 3, 4, 5, 6]),
        ("power_watts", None, [100, 90], [100, 90, 100, 90, 100, 90]),
        (ENERGY, None, [5, math.inf, 7], [5, math.inf, 7, 7, math.inf, 9, 9, math.inf, 11]),
        (ENERGY, None, [1 << 80, -3], [1 << 80, -3, 1 << 80, -3, 1 << 80, -3]),
    ],
    ids=[
        "counts",
        "is reset in the recording",
        "was 0 before the recording",
        "has one reading",
        "was 0 in the recording",
        "was 0 in the recording, and appears later",
        "no counter",
        "an infinite value",
        "impossible values",
    ],
)
def test_a_counter_continues(
    field: str, since: float | None, recorded: list[Value], expected: list[Value]
) -> None:
    window_start = None if since is None else at(since)
    readings = played(recorded, field, window_start)
    assert [one.value for one in readings] == expected
    if field == "xid_errors":
        # The start of a counter moves only at a reset.
        assert {one.window_start for one in readings} == {later(at(1000), at(0.1))}


_STEPS: Final = st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=1, max_size=20)
"""By how much a counter grows; None: it is reset."""


@given(first=st.integers(0, 10**12), steps=_STEPS)
@settings(max_examples=examples(100))
def test_the_increase_of_any_counter_is_that_of_each_pass(
    first: int, steps: list[int | None]
) -> None:
    recorded = [first]
    for step in steps:
        recorded.append(0 if step is None else recorded[-1] + step)
    values = [one.value for one in played(recorded)]
    assert values[: len(recorded)] == recorded
    assert increase(values) == PASSES * increase(recorded)
    if None not in steps:
        assert values == sorted(values)


def test_the_number_of_counters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuation, "MAX_SERIES", 0)
    assert [one.value for one in played([1, 2])] == [1, 2] * PASSES


def test_another_recording_in_its_place_does_not_continue() -> None:
    kept = Continuation()
    event = SamplesTaken((reading(gpu(0), ENERGY, 100),))
    assert kept.begin_pass(START, at(10)) == kept.begin_pass(START, at(20)) == at(10)
    assert kept.continued("gpus", event, event) == event
    assert kept.begin_pass(at(1), at(30)) == at(30)
    lower = SamplesTaken((reading(gpu(0), ENERGY, 50),))
    assert kept.continued("gpus", lower, lower) == lower


def sample(second: float, since: float | None, energy_mj: int) -> ProcessesSampled:
    owner = PartialRef(uid="u-trainer")
    busy = None if since is None else NS
    process = ProcessUse(7, 1234, owner, "compute", 1 << 30, busy)
    begin = None if since is None else at(since)
    use = DeviceUse(gpu(0).uuid, at(second), begin, (process,), 2 << 30, 0, busy, energy_mj, 6 * NS)
    return ProcessesSampled((use,))


def node(listed: ClaimsReplaced) -> list[Recorded]:
    """Return a recording of a GPU that uses 100 W, with an XID error and a known holder."""
    seconds = range(2, LENGTH + 1, 2)
    watched: list[Recorded] = []
    for second in seconds:
        energy = 10**9 + second * 100_000
        errors = reading(gpu(0), "xid_errors", int(second > 20), when=at(second))
        errors = errors._replace(attrs=(("xid", "31"),), window_start=at(0.1))
        read = (reading(gpu(0), ENERGY, energy, when=at(second)), errors)
        watched.append((second, "gpus", "nvml", SamplesTaken(read)))
        since = None if second == 2 else second - 2
        watched.append((second, "gpus", "nvml", sample(second, since, energy)))
    old, new = (XidReport(gpu(0).uuid, "", 31, at(second)) for second in (-100, 19))
    events: list[tuple[float, str, str, Event]] = [
        (0.1, "gpus", "nvml", DevicesDiscovered((gpu(0),))),
        (0.2, "podlist", "podlist", listed),
        (1, "kernel", "kernel", XidsReported((old,))),
        (19, "kernel", "kernel", XidsReported((new,))),
        (20, "podlist", "podlist", listed),
    ]
    return sorted([*events, *watched], key=lambda one: one[0])


def held(since: Instant | None) -> ClaimsReplaced:
    made = claim("trainer", gpu(0).uuid)
    subject = replace(made.subject, uid="u-trainer")
    return claims(replace(made, since=since, subject=subject))


@pytest.mark.looptime
@pytest.mark.parametrize("since", [-3600, None], ids=["since is recorded", "since is observed"])
async def test_accounts_readings_and_holders_agree(tmp_path: Path, since: float | None) -> None:
    listed = held(None if since is None else at(since))
    path = record(tmp_path / "node.podgpu.gz", node(listed))
    ctx = await play_for(path, PASSES * LENGTH + 1, loop=True)
    join, starts, values = Join(), set[Instant](), list[Value]()
    for envelope in ctx.relayed:
        join.apply(replace(envelope, relayed_by="replay"))
        snapshot = join.snapshot(envelope.at)
        for known in snapshot.layout.attributions.values():
            starts |= {holder.since for holder in known.holders}
        values += [one.value for one in snapshot.readings if one.field == ENERGY]
    snapshot = join.snapshot(ctx.clock.now())
    assert len(starts) == 1
    if since is not None:
        assert starts == {Instant(ctx.start.mono_ns - 3600 * NS, ctx.wall(-3600))}
    # Each pass has 38 seconds between its samples.
    gained = PASSES * (LENGTH - 2) * 100_000
    assert values == sorted(values)
    assert values[-1] - values[0] == gained
    assert snapshot.usage is not None
    (account,) = snapshot.usage.devices.values()
    assert account.energy_mj == gained
    # No time is missing, also not between two passes.
    assert account.at.mono_ns - account.start.mono_ns == account.elapsed_ns
    (container,) = account.containers
    assert container.holding is not None
    assert container.holding.gap_ns == 0
    # One error in each pass, and one before the recording.
    errors = [one.value for one in snapshot.readings if one.field == "xid_errors"]
    assert errors == [PASSES]
    assert sum(count for _, count in container.xids) == PASSES
    assert len(snapshot.xids) == PASSES + 1


@pytest.mark.looptime
async def test_a_late_pass_leaves_a_gap_in_the_accounts(tmp_path: Path) -> None:
    """A sample that is no longer valid does not adjoin the next one."""
    recorded = [*node(held(None)), (LENGTH + 20, "gpus", "nvml", SamplesTaken(()))]
    path = record(tmp_path / "node.podgpu.gz", recorded)
    ctx = await play_for(path, 2 * (LENGTH + 20), loop=True)
    samples = [one.event for one in ctx.relayed if isinstance(one.event, ProcessesSampled)]
    assert [one.uses[0].since is None for one in samples].count(True) == len((1, 2))


def passes(path: Path, count: int) -> Iterator[tuple[int, Envelope]]:
    """Yield the envelopes of several passes, each with the number of its pass."""
    kept, began = Continuation(), START
    for number in range(count):
        playing = ReplayPass(path, began, 1.0, kept, original=False)
        events = itertools.chain(playing.events(path.read_bytes()), playing.events(b""))
        while batch := playing.take(events):
            for envelope in batch:
                yield number, envelope
        began = playing.end()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_continues() -> None:
    """Counters of the demo never decrease, holders stay, and no time is missing between passes."""
    join, decreased, latest = Join(), list[object](), dict[object, Value]()
    starts, gaps = dict[tuple[str, PartialRef], set[Instant]](), list[dict[str, float]]()
    for number, group in itertools.groupby(passes(recording_path(DEMO), PASSES), itemgetter(0)):
        for count, (_, envelope) in enumerate(group):
            join.apply(replace(envelope, relayed_by="replay"))
            readings = envelope.event.readings if isinstance(envelope.event, SamplesTaken) else ()
            for one in readings:
                if one.field in _COUNTERS:
                    key = (one.device, one.field, one.attrs)
                    if one.value < latest.get(key, 0):
                        decreased.append((number, key, latest[key], one.value))
                    latest[key] = one.value
            if count % 50 == 0:
                for uuid, known in join.snapshot(envelope.at).layout.attributions.items():
                    for holder in known.holders:
                        starts.setdefault((uuid, holder.subject), set()).add(holder.since)
        snapshot = join.snapshot(envelope.at)
        assert snapshot.usage is not None
        # The time of a GPU with MIG instances counts on these.
        usages = [one for one in snapshot.usage.devices.values() if one.elapsed_ns]
        gaps.append(
            {one.device: one.start.seconds_until(one.at) - one.elapsed_ns / NS for one in usages}
        )
    assert decreased == []
    assert len(starts) > 10
    # Only a pod that comes and goes within a pass starts again.
    again = {subject.pod for (_, subject), since in starts.items() if len(since) > 1}
    assert again <= {"short-0"}
    # Only GPU 5 has gaps, in which it is lost; it has the same one in each pass.
    lost = {uuid: gap for uuid, gap in gaps[0].items() if gap > 0.01}
    assert [uuid[:12] for uuid in lost] == ["GPU-00000005"]
    for number, gap in enumerate(gaps, 1):
        expected = {uuid: number * lost.get(uuid, 0) for uuid in gap}
        assert gap == pytest.approx(expected, abs=0.01)
