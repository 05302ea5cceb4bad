"""XID counters: errors are counted when the driver reports them, and over restarts."""

import logging
from dataclasses import replace

import pytest

from pipeline.fields.xid_catalogue import sentence
from pipeline.model import NS, Instant, SamplesTaken
from sources.nvml.event_counts import XidCounts
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, h100s, mixed
from tests.sources.nvml.harness import GPU, next_rounds, options, rounds, running, until, values
from tests.support.contexts import FakeSourceContext

XID_EVENT = 8


def xids(samples: SamplesTaken, uuid: str) -> dict[str, int | float]:
    return {k: v for k, v in values(samples, uuid).items() if k.startswith("xid_")}


async def watched(fake: FakeNvml, gpus: int) -> None:
    await until(lambda: fake.calls().get("nvmlDeviceRegisterEvents", 0) >= gpus)


async def test_known_codes_start_at_zero(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(xid_codes=(31, 79))):
        # Counters are reported with the round after the watch has started.
        await until(lambda: rounds(ctx) and all(xids(rounds(ctx)[-1], u) for u in GPU[:2]))
        samples = rounds(ctx)[-1]
    for uuid in GPU[:2]:
        assert xids(samples, uuid) == {"xid_last": 0, "xid_errors{31}": 0, "xid_errors{79}": 0}


async def test_errors_are_counted_by_gpu_and_code(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(xid_codes=(31, 48, 79))):
        await watched(fake_nvml, 2)
        for code in (31, 31, 79, 12):
            fake_nvml.push_xid(1, code)
        await until(
            lambda: any(
                xids(e, GPU[1]).get("xid_last") == 12
                for e in ctx.events
                if isinstance(e, SamplesTaken)
            )
        )
        samples = await next_rounds(ctx)
    found = xids(samples, GPU[1])
    seen = {name: found.pop(name) for name in list(found) if "seen" in name}
    assert found == {
        "xid_last": 12,
        "xid_errors{12}": 1,
        "xid_errors{31}": 2,
        "xid_errors{48}": 0,
        "xid_errors{79}": 1,
    }
    now = ctx.clock.now().wall_ns / 1e9
    assert set(seen) == {f"xid_last_seen_timestamp_seconds{{{code}}}" for code in (31, 79, 12)}
    assert all(now - 30 < value <= now for value in seen.values())
    assert xids(samples, GPU[0])["xid_last"] == 0


async def test_an_error_is_reported_before_the_next_round(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(interval=60, slow=60)):
        await watched(fake_nvml, 1)
        fake_nvml.push_xid(0, 79)
        await until(
            lambda: any(
                xids(e, GPU[0]).get("xid_errors{79}") == 1
                for e in ctx.events
                if isinstance(e, SamplesTaken)
            )
        )


async def test_counts_continue_over_a_restart(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(xid_codes=(31,)))
    for expected in (1, 2):
        fake_nvml.calls(reset=True)
        async with running(ctx, source):
            await watched(fake_nvml, 1)
            fake_nvml.push_xid(0, 31)
            await until(
                lambda expected=expected: any(
                    xids(e, GPU[0]).get("xid_errors{31}") == expected
                    for e in ctx.events
                    if isinstance(e, SamplesTaken)
                )
            )


async def test_an_error_of_a_mig_instance_is_counted_for_its_gpu(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx):
        await watched(fake_nvml, 4)
        fake_nvml.push_xid(1, 31, gi=8, ci=0)
        await until(
            lambda: any(
                xids(e, GPU[1]).get("xid_errors{31}") == 1
                for e in ctx.events
                if isinstance(e, SamplesTaken)
            )
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"values": {"event_types": 0x10}},
        {"errors": {"nvmlDeviceRegisterEvents": 3}},
        {"errors": {"nvmlDeviceRegisterEvents": 999}},
    ],
)
async def test_a_gpu_without_events_has_no_xid_readings(
    fake_nvml: FakeNvml, changes: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options())
    fake_nvml.set(h100s(2).with_gpu(0, **changes))
    caplog.set_level(logging.WARNING)
    async with running(ctx, source):
        await until(lambda: "cannot watch GPU 0" in caplog.text)
    async with running(ctx, source):
        samples = await next_rounds(ctx, 3)
    assert xids(samples, GPU[0]) == {}
    assert xids(samples, GPU[1])["xid_last"] == 0
    assert caplog.text.count("cannot watch GPU 0") == 1


async def test_a_driver_without_event_sets_has_no_xid_readings(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(h100s(1), errors={"nvmlEventSetCreate": 3}))
    async with running(ctx):
        samples = await next_rounds(ctx, 3)
    assert xids(samples, GPU[0]) == {}
    assert "power_watts" in values(samples, GPU[0])


@pytest.mark.slow
async def test_event_sets_that_become_available_later_are_used(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(h100s(1), errors={"nvmlEventSetCreate": 999}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await next_rounds(ctx)
        fake_nvml.set(h100s(1))
        await until(lambda: xids(rounds(ctx)[-1], GPU[0]).get("xid_last") == 0)


async def test_an_added_gpu_is_watched(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx):
        await watched(fake_nvml, 1)
        fake_nvml.set(h100s(2))
        await watched(fake_nvml, 2)
        fake_nvml.push_xid(1, 79)
        await until(
            lambda: any(
                xids(e, GPU[1]).get("xid_errors{79}") == 1
                for e in ctx.events
                if isinstance(e, SamplesTaken)
            )
        )


@pytest.mark.slow
async def test_a_lost_gpu_keeps_its_count_and_is_watched_again(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await watched(fake_nvml, 2)
        fake_nvml.push_xid(0, 79)
        fake_nvml.set(h100s(2).with_gpu(0, lost=True))
        samples = await next_rounds(ctx, 4)
        assert xids(samples, GPU[0])["xid_errors{79}"] == 1
        assert values(samples, GPU[0])["gpu_up"] == 0
        fake_nvml.calls(reset=True)
        fake_nvml.set(h100s(2))
        await watched(fake_nvml, 2)
        fake_nvml.push_xid(0, 31)
        fake_nvml.push_xid(1, 31)
        for uuid in GPU[:2]:
            await until(
                lambda uuid=uuid: any(
                    xids(e, uuid).get("xid_errors{31}") == 1
                    for e in ctx.events
                    if isinstance(e, SamplesTaken)
                )
            )


@pytest.mark.slow
async def test_a_storm_is_counted_in_full_and_logged_once(
    fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    caplog.set_level(logging.WARNING)
    async with running(ctx, options(xid_codes=(31,))):
        await watched(fake_nvml, 2)
        await until(lambda: bool(rounds(ctx)))
        for _ in range(200):
            for place, code in ((0, 31), (0, 48), (1, 31)):
                fake_nvml.push_xid(place, code)
        await until(
            lambda: (
                xids(rounds(ctx)[-1], GPU[0]).get("xid_errors{48}") == 200
                and xids(rounds(ctx)[-1], GPU[1]).get("xid_errors{31}") == 200
            ),
            within=20,
        )
        assert xids(rounds(ctx)[-1], GPU[0])["xid_errors{31}"] == 200
    lines = sorted(r.getMessage() for r in caplog.records if r.getMessage().startswith("XID"))
    assert lines == [
        f"XID 31 on GPU 0 ({GPU[0]}): {sentence(31)}",
        f"XID 31 on GPU 1 ({GPU[1]}): {sentence(31)}",
        f"XID 48 on GPU 0 ({GPU[0]}): {sentence(48)}",
    ]


@pytest.mark.slow
async def test_suppressed_log_lines_are_summed_up_after_a_minute(
    fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.nvml.event_counts.LOG_INTERVAL_NS", NS // 2)
    ctx = FakeSourceContext()
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await watched(fake_nvml, 1)
        for _ in range(4):
            fake_nvml.push_xid(0, 79)
        await until(lambda: "more since the last log line" in caplog.text)
    text = "GPU has fallen off the bus; advice: reboot the node"
    line = f"XID 79 on GPU 0 ({GPU[0]}): {text}; 3 more since the last log line"
    assert line in caplog.text


def seconds(at: float) -> Instant:
    return Instant(round(at * NS), 0)


def test_one_line_is_logged_per_minute_gpu_and_code() -> None:
    counts = XidCounts()
    admitted = [
        counts.add(uuid, code, seconds(at))
        for at, uuid, code in (
            (5, "a", 31),  # logged
            (6, "a", 31),
            (6, "b", 31),  # another GPU
            (6, "a", 79),  # another code
            (64.9, "a", 31),
            (65, "a", 31),  # the minute has passed: logged with the number of suppressed lines
            (124, "a", 31),
        )
    ]
    assert admitted == [0, None, 0, 0, None, 2, None]
    assert counts.overdue(seconds(124.9)) == []
    assert counts.overdue(seconds(125)) == [("a", 31, 1)]
    assert counts.overdue(seconds(300)) == [], "nothing was suppressed since"
    assert counts.add("a", 31, seconds(184)) is None, "the overdue line counts as a log line"
    counts.forget("a")
    assert counts.overdue(seconds(300)) == []


async def test_other_events_are_not_counted(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(xid_codes=(31,))):
        await watched(fake_nvml, 1)
        fake_nvml.push_event(0, 0x10, 31)
        fake_nvml.push_event(0, XID_EVENT, 31)
        await until(
            lambda: any(
                xids(e, GPU[0]).get("xid_errors{31}") == 1
                for e in ctx.events
                if isinstance(e, SamplesTaken)
            )
        )
        assert xids(await next_rounds(ctx), GPU[0])["xid_errors{31}"] == 1
