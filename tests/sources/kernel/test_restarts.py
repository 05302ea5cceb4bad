"""From where on the log is read when the source begins anew, and what it still has to tell then."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from sources.kernel.kmsg_device import Log
from sources.kernel.lookup_thread import BlockingCalls
from sources.kernel.process_owners import Process
from tests.sources.kernel.logs import Kmsg, xid
from tests.sources.kernel.running import codes, dropped, reports, running, until
from tests.support.contexts import FakeSourceContext


async def test_after_a_restart_it_continues_where_it_was(kmsg: Kmsg) -> None:
    """The device gives all that it still has to whoever opens it."""
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        kmsg.says(xid(31))
        await until(lambda: codes(ctx) == [31])
    stopped = ctx.clock.now()
    kmsg.raw(f"3,0,1000000,-;{xid(31)}\n".encode())
    kmsg.says(xid(48))
    async with running(ctx, kmsg.path):
        await until(lambda: len(codes(ctx)) > 1)
        kmsg.says(xid(79))
        await until(lambda: 79 in codes(ctx))
    assert codes(ctx) == [31, 48, 79]
    assert dropped(ctx, "overwritten") == 0
    assert reports(ctx)[1].at.mono_ns <= stopped.mono_ns, "by its stamp, not when it was read"


async def test_what_was_there_before_is_not_reported_however_often_it_is_opened(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device gives all that it still has to whoever opens it and doesn't go to its end."""

    def skip_to_end(log: Log) -> None:
        while log.read() is not None:
            pass

    monkeypatch.setattr(Log, "skip_to_end", skip_to_end)
    ctx = FakeSourceContext()
    for _ in range(3):
        kmsg.says(xid(31))
        async with running(ctx, kmsg.path):
            pass
    kmsg.says(xid(31))
    async with running(ctx, kmsg.path):
        kmsg.says(xid(79))
        await until(lambda: bool(codes(ctx)))
    assert codes(ctx) == [79]


@pytest.mark.parametrize("where", ["looking up", "telling"])
async def test_a_stop_at_any_moment_costs_no_error_and_reports_none_twice(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """What was read is not read again: so it stays until it was told."""
    reached = asyncio.Event()

    async def hang(*_: object) -> Mapping[int, Process]:
        reached.set()
        await asyncio.Event().wait()
        return {}

    ctx = FakeSourceContext()
    for code in (31, 79):
        async with running(ctx, kmsg.path):
            if where == "looking up":
                monkeypatch.setattr(BlockingCalls, "lookup", hang)
            else:
                monkeypatch.setattr(ctx, "emit", hang)
            reached.clear()
            kmsg.says(xid(code))
            await reached.wait()
            kmsg.says(xid(code + 1))
        monkeypatch.undo()
    async with running(ctx, kmsg.path):
        kmsg.says(xid(1))
        await until(lambda: 1 in codes(ctx))
    assert sorted(codes(ctx)) == [1, 31, 32, 79, 80]
    assert sum(dropped(ctx, reason) for reason in ("malformed", "overwritten", "xids")) == 0


async def test_of_another_log_the_numbers_mean_nothing(kmsg: Kmsg, tmp_path: Path) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path):
        kmsg.says(xid(31), skip=1000)
        await until(lambda: codes(ctx) == [31])
    with contextlib.closing(Kmsg(tmp_path / "another")) as another:
        async with running(ctx, another.path):
            another.says(xid(79))
            await until(lambda: codes(ctx) == [31, 79])
