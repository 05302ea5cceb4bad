"""Restarts of the source: where reading continues, and which errors are still reported."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from sources.kernel.kmsg_device import Log
from sources.kernel.process_owners import BlockingCalls, Process
from tests.sources.kernel.logs import Kmsg, xid
from tests.sources.kernel.running import codes, dropped, reports, running, until
from tests.support.contexts import FakeSourceContext


async def test_reading_continues_after_a_restart(kmsg: Kmsg) -> None:
    """The device returns all records that it still has to each program that opens it."""
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        kmsg.write(xid(31))
        await until(lambda: codes(ctx) == [31])
    stopped = ctx.clock.now()
    kmsg.write_raw(f"3,0,1000000,-;{xid(31)}\n".encode())
    kmsg.write(xid(48))
    async with running(ctx, kmsg.path):
        await until(lambda: len(codes(ctx)) > 1)
        kmsg.write(xid(79))
        await until(lambda: 79 in codes(ctx))
    assert codes(ctx) == [31, 48, 79]
    assert dropped(ctx, "overwritten") == 0
    assert reports(ctx)[1].at.mono_ns <= stopped.mono_ns, (
        "the time of its timestamp, not of reading"
    )


async def test_records_from_before_the_first_start_are_never_reported(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device returns all records that it still has, unless the reader skips to its end."""

    def skip_to_end(log: Log) -> None:
        while log.read() is not None:
            pass

    monkeypatch.setattr(Log, "skip_to_end", skip_to_end)
    ctx = FakeSourceContext()
    for _ in range(3):
        kmsg.write(xid(31))
        async with running(ctx, kmsg.path):
            pass
    kmsg.write(xid(31))
    async with running(ctx, kmsg.path):
        kmsg.write(xid(79))
        await until(lambda: bool(codes(ctx)))
    assert codes(ctx) == [79]


@pytest.mark.parametrize("where", ["lookup", "emit"])
async def test_a_stop_at_any_time_loses_no_error_and_repeats_none(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A record is read once, so it stays pending until it has been reported."""
    reached = asyncio.Event()

    async def hang(*_: object) -> Mapping[int, Process]:
        reached.set()
        await asyncio.Event().wait()
        return {}

    ctx = FakeSourceContext()
    for code in (31, 79):
        async with running(ctx, kmsg.path):
            if where == "lookup":
                monkeypatch.setattr(BlockingCalls, "lookup", hang)
            else:
                monkeypatch.setattr(ctx, "emit", hang)
            reached.clear()
            kmsg.write(xid(code))
            await reached.wait()
            kmsg.write(xid(code + 1))
        monkeypatch.undo()
    async with running(ctx, kmsg.path):
        kmsg.write(xid(1))
        await until(lambda: 1 in codes(ctx))
    assert sorted(codes(ctx)) == [1, 31, 32, 79, 80]
    assert sum(dropped(ctx, reason) for reason in ("malformed", "overwritten", "xids")) == 0


async def test_record_numbers_of_another_log_are_not_compared(kmsg: Kmsg, tmp_path: Path) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        kmsg.write(xid(31), skip=1000)
        await until(lambda: codes(ctx) == [31])
    with contextlib.closing(Kmsg(tmp_path / "another")) as another:
        async with running(ctx, another.path):
            another.write(xid(79))
            await until(lambda: codes(ctx) == [31, 79])
