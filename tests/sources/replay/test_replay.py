"""A recording is played at its own speed, with times of the current clock."""

import asyncio
import gzip
import logging
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.registry import build_source
from pipeline.join import Join
from pipeline.model import (
    NS,
    ClockTicked,
    DevicesDiscovered,
    Envelope,
    Event,
    Instant,
    SamplesTaken,
    SourceAdded,
    TotalsRestored,
)
from sources.replay import options as replay_options
from sources.replay.options import Options
from sources.replay.source import ReplaySource
from tests.sources.replay.playing import Listener, play, play_for, record
from tests.support.nodes import START, at, claim, claims, gpu, reading

HOUR = 3600


def watts(second: float, value: float) -> SamplesTaken:
    return SamplesTaken((reading(gpu(0), "power_watts", value, when=at(second - 0.01)),))


EVENTS: Sequence[tuple[float, str, str, Event]] = (
    (0.1, "gpus", "nvml", SourceAdded(0)),
    (0.1, "gpus", "nvml", DevicesDiscovered((gpu(0),))),
    (0.5, "pods", "podlist", claims(replace(claim("trainer", gpu(0).uuid), since=at(-HOUR)))),
    *((second, "gpus", "nvml", watts(second, 100 + second)) for second in range(1, 41)),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record(tmp_path / "node.podgpu.gz", EVENTS)


SECONDS = [second for second, *_ in EVENTS]


@pytest.mark.looptime
@pytest.mark.parametrize("speed", [0.5, 1, 4])
async def test_the_speed_option_divides_the_recorded_time(path: Path, speed: float) -> None:
    ctx = await play(path, speed=speed)
    assert ctx.relayed_after == pytest.approx([second / speed for second in SECONDS], abs=0.002)


@pytest.mark.looptime
async def test_events_keep_the_names_of_their_sources(path: Path) -> None:
    ctx = await play(path)
    assert [(e.source, e.kind) for e in ctx.relayed] == [
        (name, kind) for _, name, kind, _ in EVENTS
    ]
    assert {envelope.seq for envelope in ctx.relayed} == {0}
    assert ctx.events == []
    assert ctx.relayed[1].event == EVENTS[1][3]


@pytest.mark.looptime
async def test_delays_do_not_accumulate(path: Path) -> None:
    class Busy(Listener):
        async def relay(self, envelope: Envelope) -> None:
            await super().relay(envelope)
            await asyncio.sleep(0.3)

    ctx = Busy()
    await ReplaySource(Options(path=str(path))).run(ctx)
    assert ctx.relayed_after[-20:] == pytest.approx(SECONDS[-20:], abs=0.002)


@pytest.mark.looptime
async def test_times_are_those_of_the_replay(path: Path) -> None:
    ctx = await play(path, speed=2)
    last = ctx.relayed[-1]
    assert last.at == Instant(ctx.start.mono_ns + 20 * NS, ctx.wall(20))
    assert isinstance(last.event, SamplesTaken)
    (sample,) = last.event.readings
    assert sample.at == Instant(ctx.start.mono_ns + 19_995_000_000, ctx.wall(19.995))
    # Samples are passed on at most in real time, so validity is not shortened.
    assert sample.good_for_ns == 15 * NS


@pytest.mark.looptime
async def test_times_before_the_recording_are_shifted_by_the_same_amount(path: Path) -> None:
    ctx = await play(path, speed=10)
    event = ctx.relayed[2].event
    assert isinstance(event, type(EVENTS[2][3]))
    since = event.claims[0].since  # type: ignore[union-attr]
    assert since == Instant(ctx.start.mono_ns - HOUR * NS, ctx.wall(-HOUR))


@pytest.mark.looptime
async def test_a_slow_replay_extends_the_validity_of_readings(path: Path) -> None:
    ctx = await play_for(path, 20, speed=0.1)
    event = ctx.relayed[-1].event
    assert isinstance(event, SamplesTaken)
    assert event.readings[0].good_for_ns == 150 * NS


@pytest.mark.looptime
async def test_original_time_keeps_the_wall_clock(path: Path) -> None:
    ctx = await play(path, time="original", speed=2)
    last = ctx.relayed[-1]
    assert last.at == Instant(ctx.start.mono_ns + 20 * NS, at(40).wall_ns)


@pytest.mark.looptime
@pytest.mark.parametrize(("time", "start"), [("current", None), ("original", START.wall_ns)])
async def test_a_reading_that_is_a_time_is_moved_like_wall_times(
    tmp_path: Path, time: str, start: int | None
) -> None:
    seen = START.wall_ns / NS + 3
    last = reading(gpu(0), "xid_last_seen_timestamp_seconds", seen, when=at(5))
    path = record(tmp_path / "x", [*EVENTS[:2], (5.1, "gpus", "nvml", SamplesTaken((last,)))])
    ctx = await play(path, time=time)
    event = ctx.relayed[-1].event
    assert isinstance(event, SamplesTaken)
    expected = (ctx.start.wall_ns if start is None else start) / NS + 3
    assert event.readings[0].value == pytest.approx(expected, abs=0.001)


@pytest.mark.looptime
@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0, 1e300, 0])
async def test_a_time_that_is_impossible_stays_as_recorded(tmp_path: Path, value: float) -> None:
    last = reading(gpu(0), "xid_last_seen_timestamp_seconds", value, when=at(5))
    path = record(tmp_path / "x", [*EVENTS[:2], (5.1, "gpus", "nvml", SamplesTaken((last,)))])
    event = (await play(path)).relayed[-1].event
    assert isinstance(event, SamplesTaken)
    assert event.readings[0].value == pytest.approx(value, nan_ok=True)


@pytest.mark.looptime
async def test_loop_restarts_at_the_end(path: Path) -> None:
    ctx = await play_for(path, 125, loop=True)
    expected = [lap + second for lap in (0, 40, 80, 120) for second in SECONDS]
    relayed_after = [second for second in expected if second < 125]
    assert ctx.relayed_after == pytest.approx(relayed_after, abs=0.01)
    repeated = ctx.relayed[len(EVENTS) + 3]
    assert isinstance(repeated.event, SamplesTaken)
    assert repeated.event.readings[0].value == 101
    assert repeated.at.mono_ns - ctx.start.mono_ns == pytest.approx(41 * NS, abs=NS // 50)


@pytest.mark.looptime
async def test_an_empty_recording_in_a_loop_does_not_use_the_cpu(tmp_path: Path) -> None:
    ctx = await play_for(record(tmp_path / "empty", ()), 60, loop=True)
    assert ctx.relayed == []


@pytest.mark.looptime
async def test_a_replay_that_is_late_continues_from_now(path: Path) -> None:
    class Stuck(Listener):
        async def relay(self, envelope: Envelope) -> None:
            if len(self.relayed) == 10:
                await asyncio.sleep(1000)
            await super().relay(envelope)

    ctx = Stuck()
    running = asyncio.create_task(ReplaySource(Options(path=str(path), loop=True)).run(ctx))
    await asyncio.sleep(1030)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(EVENTS) < len(ctx.relayed) < 2 * len(EVENTS)


@pytest.mark.looptime
async def test_the_join_has_the_same_result_as_on_the_recorded_node(path: Path) -> None:
    ctx, join = await play(path), Join()
    for envelope in ctx.relayed:
        join.apply(envelope)
    now = ctx.clock.now()
    join.apply(Envelope("clock", "clock", 0, now, ClockTicked()))
    snapshot = join.snapshot(now)
    assert [one.value for one in snapshot.readings] == [140]
    (attribution,) = snapshot.layout.attributions.values()
    assert attribution.holders[0].subject.pod == "trainer"
    later = Instant(now.mono_ns + 60 * NS, now.wall_ns + 60 * NS)
    join.apply(Envelope("clock", "clock", 0, later, ClockTicked()))
    assert join.snapshot(later).readings == ()


@pytest.mark.looptime
async def test_a_recording_without_its_end_is_played_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(path.read_bytes()[:-30])
    with caplog.at_level(logging.INFO):
        ctx = await play(path)
    assert 20 < len(ctx.relayed) <= len(EVENTS)
    assert caplog.text.count("is incomplete") == 1
    assert "recorded on node node-9" in caplog.text
    assert "has ended" in caplog.text


@pytest.mark.looptime
async def test_unknown_events_of_a_newer_podgpu_are_skipped_and_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = gzip.decompress(path.read_bytes()).replace(b'"SourceAdded"', b'"SourceBlessed"')
    path.write_bytes(gzip.compress(text))
    ctx = await play(path)
    assert len(ctx.relayed) == len(EVENTS) - 1
    assert "1 events of type SourceBlessed" in caplog.text


async def test_a_missing_file_is_a_transient_error(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="podgpu record"):
        await play(tmp_path / "none")
    with pytest.raises(TransientError, match="cannot read"):
        await play(record(tmp_path / "file", EVENTS) / "below")


async def test_another_file_is_a_transient_error_and_a_folder_a_permanent_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "other").write_text("hello")
    with pytest.raises(TransientError, match="not a podgpu recording"):
        await play(tmp_path / "other")
    with pytest.raises(PermanentError, match="is a folder"):
        await play(tmp_path)


@pytest.mark.looptime
async def test_damage_is_reported_when_it_is_reached(path: Path) -> None:
    lines = gzip.decompress(path.read_bytes()).splitlines()
    path.write_bytes(gzip.compress(b"\n".join([*lines[:20], b"{", *lines[20:]])))
    ctx = Listener()
    with pytest.raises(TransientError, match="line 21"):
        await ReplaySource(Options(path=str(path))).run(ctx)
    assert 0 < len(ctx.relayed) < len(EVENTS)


@pytest.mark.looptime
async def test_accounts_are_restored_only_in_the_first_pass(tmp_path: Path) -> None:
    restored = (0.0, "ledger", "ledger", TotalsRestored(()))
    ctx = await play_for(record(tmp_path / "x", [restored, *EVENTS]), 100, loop=True)
    events = [envelope.event for envelope in ctx.relayed]
    assert [isinstance(event, TotalsRestored) for event in events].index(True) == 0
    assert sum(isinstance(event, TotalsRestored) for event in events) == 1
    assert sum(isinstance(event, DevicesDiscovered) for event in events) == 3


@pytest.mark.looptime
async def test_the_path_of_the_demo_plays_the_included_recording(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(replay_options, "_DEMO_FILE", path)
    assert len((await play("builtin:demo")).relayed) == len(EVENTS)
    monkeypatch.setattr(replay_options, "_DEMO_FILE", tmp_path / "none")
    with pytest.raises(PermanentError, match=r"No such file or directory\): reinstall podgpu"):
        await play("builtin:demo")
    (tmp_path / "damaged").write_bytes(b"no recording")
    monkeypatch.setattr(replay_options, "_DEMO_FILE", tmp_path / "damaged")
    with pytest.raises(PermanentError, match=r"^builtin:demo is not a podgpu recording"):
        await play("builtin:demo")


def test_the_registry_builds_the_source() -> None:
    assert isinstance(build_source("replay", Options(path="x")), ReplaySource)


async def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TransientError, match=r"cannot read .*: Is not a regular file"):
        await play(tmp_path / "pipe")


@pytest.mark.slow
async def test_the_file_is_closed_after_a_cancelled_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, proceed, real = threading.Event(), threading.Event(), os.open

    def slow(*args: Any, **more: Any) -> int:
        opening.set()
        assert proceed.wait(10)
        return real(*args, **more)

    monkeypatch.setattr(os, "open", slow)
    running = asyncio.create_task(ReplaySource(Options(path=str(path))).run(Listener()))
    await asyncio.to_thread(opening.wait, 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    proceed.set()
    async with asyncio.timeout(5):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert path not in links
