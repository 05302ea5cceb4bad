"""Tests that usage totals are restored from a sink at a start, before the first event."""

import asyncio
from collections.abc import Iterator

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import Envelope, TotalsRestored
from pipeline.model.ledger_usage import HourTotal, UsageWindow
from pipeline.runtime.runtime import Runtime
from tests.pipeline.runtime.runtimes import gpus, registered
from tests.support.components import KeepingSink, Registered, configured
from tests.support.contexts import LoopClock
from tests.support.nodes import gpu
from tests.support.usage import account

__all__ = ["registered"]
pytestmark = pytest.mark.looptime

STORED = TotalsRestored((account(gpu(0)),))


class Ledger(KeepingSink):
    """A sink that stores usage.

    Args:
        stored: the totals that it returns; an error that it raises; or seconds that it takes.
    """

    def __init__(self, stored: TotalsRestored | Exception | float | None) -> None:
        super().__init__()
        self.stored = stored
        self.requests = 0

    async def stored_usage(self) -> TotalsRestored | None:
        self.requests += 1
        if isinstance(self.stored, float):
            await asyncio.sleep(self.stored)
            return STORED
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        return UsageWindow("", start_ns, end_ns, (), (), ())

    async def hours(self, start_ns: int, end_ns: int) -> tuple[HourTotal, ...]:
        return ()


async def run_podgpu(
    registered: Registered, *ledgers: Ledger, reload: bool = False
) -> tuple[list[Envelope], Runtime]:
    """Run podgpu with ledgers; return the events that its inbox received."""
    registered.sources = {"gpus": gpus}
    names = {f"l{number}": (f"ledger{number}", 0) for number in range(len(ledgers))}
    registered.sinks.update({f"ledger{number}": one for number, one in enumerate(ledgers)})
    received: list[Envelope] = []
    runtime = Runtime(
        configured({"g": ("gpus", 0)}, {"k": ("keep", 0), **names}),
        clock=LoopClock(),
        taps=(received.append,),
    )
    stop = asyncio.Event()
    task = asyncio.create_task(runtime.run(stop))
    await asyncio.sleep(20)
    if reload:
        changed = {name: (kind, 1) for name, (kind, _) in names.items()}
        assert await runtime.reload(configured({"g": ("gpus", 0)}, {"k": ("keep", 0), **changed}))
        await asyncio.sleep(20)
    stop.set()
    await task
    return [one for one in received if one.kind != "clock"], runtime


def restored(received: list[Envelope]) -> list[tuple[int, str, str]]:
    return [
        (place, one.source, one.kind)
        for place, one in enumerate(received)
        if isinstance(one.event, TotalsRestored)
    ]


@pytest.fixture
def registered_twice(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Registered]:
    """Registered kinds for two ledgers."""
    registered.sinks["ledger0"] = registered.sinks["ledger1"] = KeepingSink()
    with registered.installed(monkeypatch):
        yield registered


async def test_restored_totals_come_before_the_first_event_of_a_source(
    registered_twice: Registered,
) -> None:
    received, runtime = await run_podgpu(registered_twice, Ledger(STORED))
    assert restored(received) == [(0, "l0", "ledger0")]
    assert list(runtime._publisher.join.sources()) == ["g"], "a ledger is not a source"


async def test_the_totals_of_the_first_ledger_that_has_some_are_restored(
    registered_twice: Registered,
) -> None:
    first, second = Ledger(None), Ledger(STORED)
    received, _ = await run_podgpu(registered_twice, first, second)
    assert restored(received) == [(0, "l1", "ledger1")]
    third = Ledger(STORED)
    received, _ = await run_podgpu(registered_twice, third, second)
    assert restored(received) == [(0, "l0", "ledger0")]
    assert (third.requests, second.requests) == (1, 1)


@pytest.mark.parametrize("stored", [TransientError("the disk is away"), 60.0, None])
async def test_podgpu_starts_if_no_totals_can_be_restored(
    registered_twice: Registered,
    caplog: pytest.LogCaptureFixture,
    stored: TotalsRestored | Exception | float | None,
) -> None:
    received, _ = await run_podgpu(registered_twice, Ledger(stored))
    assert restored(received) == []
    assert received, "the source emits events"
    assert ("could not read the stored usage accounts" in caplog.text) is (stored is not None)


async def test_a_reload_restores_no_totals(registered_twice: Registered) -> None:
    ledger = Ledger(STORED)
    received, _ = await run_podgpu(registered_twice, ledger, reload=True)
    assert len(restored(received)) == 1
    assert ledger.requests == 1
