"""The kernel source: which records it reports, its limits, and its errors."""

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import Event, XidsReported
from sources.kernel.kmsg_device import Log
from sources.kernel.log_follower import LogClock, LogReader, Progress
from sources.kernel.options import Options
from sources.kernel.source import KernelSource
from tests.sources.kernel.logs import USER, Kmsg, xid
from tests.sources.kernel.running import codes, dropped, reports, running, until
from tests.support.contexts import FakeSourceContext


async def test_an_xid_is_reported_when_it_is_logged(kmsg: Kmsg) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        started = ctx.clock.now()
        kmsg.write("usb 1-1: new device")
        kmsg.write(xid(31, rest=", pid=1234, name=python, Ch 00000010"))
        await until(lambda: codes(ctx) == [31])
    (report,) = reports(ctx)
    assert (report.device, report.pci_bus_id) == ("", "0000:3b:00.0")
    assert (report.pid, report.process, report.owner) == (1234, "python", None)
    assert started.mono_ns <= report.at.mono_ns <= ctx.clock.now().mono_ns


async def test_the_source_emits_an_empty_report_at_start(kmsg: Kmsg) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        assert ctx.events == [XidsReported(())]


async def test_the_source_repeats_the_empty_report_as_heartbeat(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.kernel.source.HEARTBEAT_SECONDS", 0.01)
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        await until(lambda: len(ctx.events) > 3)
    assert set(ctx.events) == {XidsReported(())}


async def test_records_that_processes_write_are_ignored(kmsg: Kmsg) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        kmsg.write(xid(79), facility=USER)
        kmsg.write(xid(31))
        await until(lambda: bool(codes(ctx)))
    assert codes(ctx) == [31]


async def test_overwritten_records_are_counted(kmsg: Kmsg) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        kmsg.write("first")
        kmsg.write(xid(31), skip=41)
        await until(lambda: codes(ctx) == [31])
        assert dropped(ctx, "overwritten") == 41


async def test_malformed_records_are_counted(kmsg: Kmsg) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        kmsg.write_raw(b"hello\n")
        kmsg.write("NVRM: Xid (of another form)")
        kmsg.write(xid(31))
        await until(lambda: codes(ctx) == [31])
        assert dropped(ctx, "malformed") == 2


async def test_records_of_any_facility_of_processes_are_ignored(
    kmsg: Kmsg,
) -> None:
    """The facility has eight bits. Together with the level it has up to four digits."""
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        for number in range(150):
            kmsg.write(xid(79), facility=255 - number % 155)
        kmsg.write(xid(31))
        await until(lambda: bool(codes(ctx)))
    assert codes(ctx) == [31]
    assert dropped(ctx, "malformed") == dropped(ctx, "overwritten") == 0


async def test_a_log_that_is_overwritten_continuously_is_an_error(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwritten(fd: int, _: int) -> bytes:
        raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))

    with Log(kmsg.path) as log:
        monkeypatch.setattr("sources.kernel.kmsg_device.os.read", overwritten)
        with pytest.raises(TransientError, match="overwritten faster"):
            log.read()
        monkeypatch.undo()


async def test_a_storm_is_reported_in_part_and_the_rest_is_counted(kmsg: Kmsg) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        for _ in range(50):
            kmsg.write(xid(31))
            kmsg.write(xid(31, bus="PCI:0000:af:00"))
        kmsg.write(xid(79))
        await until(lambda: 79 in codes(ctx))
        reported = (
            len([report for report in reports(ctx) if report.pci_bus_id == "0000:3b:00.0"]) - 1
        )
        assert 10 <= reported < 50
        assert len(codes(ctx)) + dropped(ctx, "xids") == 101


class SlowContext(FakeSourceContext):
    """A context whose inbox is full until `open` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()

    async def emit(self, event: Event) -> None:
        await super().emit(event)
        if len(self.events) > 1:
            await self.open.wait()


async def test_pending_errors_are_bounded_while_the_inbox_is_full(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.component.xid_rate_limit._MAX_PENDING", 20)
    ctx = SlowContext()
    async with running(ctx, kmsg.path):
        kmsg.write(xid(1))
        await until(lambda: len(ctx.events) == 2)
        for code in range(2, 102):
            kmsg.write(xid(code))
        await until(lambda: dropped(ctx, "xids") == 81)
        ctx.open.set()
        await until(lambda: len(codes(ctx)) == 20)
    assert codes(ctx) == list(range(1, 21)), "including the one that is being emitted"


async def test_a_flood_does_not_block_the_event_loop(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop gets a turn after each batch of records."""
    monkeypatch.setattr("sources.kernel.log_follower._BATCH", 5)
    ctx = FakeSourceContext()
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running(ctx, kmsg.path):
        for _ in range(200):
            kmsg.write("hello " + "x" * 500)
        kmsg.write(xid(79))
        task = asyncio.create_task(turn())
        await until(lambda: codes(ctx) == [79])
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert turns >= 200 / 5


async def failure(path: Path) -> TransientError:
    with pytest.raises(TransientError) as raised:
        async with asyncio.timeout(10):
            await KernelSource(Options(path=path)).run(FakeSourceContext())
    return raised.value


async def test_a_missing_device_is_an_error_with_a_fix(tmp_path: Path) -> None:
    error = await failure(tmp_path / "kmsg")
    assert f"{tmp_path}/kmsg: No such file" in str(error)
    assert "CharDevice" in str(error)
    assert error.retry_after == 60


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
async def test_a_device_without_permission_is_an_error_with_a_fix(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """EPERM comes from a container's device cgroup, or if dmesg_restrict is 1."""

    def refuse(path: Path, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("sources.kernel.kmsg_device.os.open", refuse)
    error = await failure(kmsg.path)
    monkeypatch.undo()
    assert "kernel.dmesg_restrict" in str(error)
    assert "privileged: true" in str(error)
    assert error.retry_after == 60


@pytest.mark.parametrize("kind", ["file", "folder", "null", "zero"])
async def test_other_files_and_devices_are_refused(tmp_path: Path, kind: str) -> None:
    place = Path("/dev", kind) if kind in {"null", "zero"} else tmp_path / "kmsg"
    if kind == "file":
        place.write_text(f"3,1,1,-;{xid()}\n")
    elif kind == "folder":
        place.mkdir()
    assert "/dev/kmsg of the host" in str(await failure(place))


async def test_the_end_of_a_log_is_an_error_after_its_last_records(kmsg: Kmsg) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path) as task:
        kmsg.write(xid(31))
        kmsg.close()
        with pytest.raises(TransientError, match="has an end, so it is not a kernel log"):
            await task
    assert codes(ctx) == [31]


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="no kernel log here")
async def test_all_records_of_the_real_device_are_parsed() -> None:
    ctx = FakeSourceContext()
    dropped_by_reason: dict[str, int] = {}
    with Log(Path("/dev/kmsg")) as log:
        progress = Progress(number=-1, log_clock=LogClock(ctx.clock.now()))
        with LogReader(log, progress, ctx.clock, dropped_by_reason.__setitem__):
            before: int | None = -2
            while progress.number != before:
                before = progress.number
                await asyncio.sleep(0.02)
    assert before is not None
    assert before > 0
    assert "malformed" not in dropped_by_reason


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="no kernel log here")
async def test_reading_the_real_device_starts_at_its_end() -> None:
    ctx = FakeSourceContext()
    with Log(Path("/dev/kmsg")) as log:
        LogReader(log, Progress(), ctx.clock, lambda *_: None)
        assert log.read() is None
