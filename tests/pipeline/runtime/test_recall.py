"""The accounts go on from what a sink keeps, before any source has spoken, and only at a start."""

import asyncio
from collections.abc import Iterator

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import Envelope, TotalsRestored
from pipeline.model.usage_window import UsageWindow
from pipeline.runtime.runtime import Runtime
from tests.pipeline.runtime.runtimes import gpus, registered
from tests.support.components import KeepingSink, Registered, configured
from tests.support.contexts import LoopClock
from tests.support.nodes import gpu
from tests.support.usage import account

__all__ = ["registered"]
pytestmark = pytest.mark.looptime

REPORTED = TotalsRestored((account(gpu(0)),))


class Ledger(KeepingSink):
    """A sink that keeps accounts.

    Args:
        told: what it tells; an error that it raises; or how many seconds it keeps silent.
    """

    def __init__(self, given_out: TotalsRestored | Exception | float | None) -> None:
        super().__init__()
        self.given_out = given_out
        self.asked = 0

    async def stored_usage(self) -> TotalsRestored | None:
        self.asked += 1
        if isinstance(self.given_out, float):
            await asyncio.sleep(self.given_out)
            return REPORTED
        if isinstance(self.given_out, Exception):
            raise self.given_out
        return self.given_out

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        return UsageWindow("", start_ns, end_ns, (), (), ())


async def ran(
    registered: Registered, *ledgers: Ledger, reload: bool = False
) -> tuple[list[Envelope], Runtime]:
    """Run podgpu with ledgers, and return what came into its inbox."""
    registered.sources = {"gpus": gpus}
    names = {f"l{number}": (f"ledger{number}", 0) for number in range(len(ledgers))}
    registered.sinks.update({f"ledger{number}": one for number, one in enumerate(ledgers)})
    heard: list[Envelope] = []
    runtime = Runtime(
        configured({"g": ("gpus", 0)}, {"k": ("keep", 0), **names}),
        clock=LoopClock(),
        taps=(heard.append,),
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
    return [one for one in heard if one.kind != "clock"], runtime


def restored(heard: list[Envelope]) -> list[tuple[int, str, str]]:
    return [
        (place, one.source, one.kind)
        for place, one in enumerate(heard)
        if isinstance(one.event, TotalsRestored)
    ]


@pytest.fixture
def registered_twice(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Registered]:
    """Two kinds of ledger."""
    registered.sinks["ledger0"] = registered.sinks["ledger1"] = KeepingSink()
    with registered.installed(monkeypatch):
        yield registered


async def test_what_it_keeps_comes_before_the_first_source(registered_twice: Registered) -> None:
    heard, runtime = await ran(registered_twice, Ledger(REPORTED))
    assert restored(heard) == [(0, "l0", "ledger0")]
    assert list(runtime._publisher.join.sources()) == ["g"], "it is no source"


async def test_the_first_that_has_something_is_believed(registered_twice: Registered) -> None:
    first, second = Ledger(None), Ledger(REPORTED)
    heard, _ = await ran(registered_twice, first, second)
    assert restored(heard) == [(0, "l1", "ledger1")]
    third = Ledger(REPORTED)
    heard, _ = await ran(registered_twice, third, second)
    assert restored(heard) == [(0, "l0", "ledger0")]
    assert (third.asked, second.asked) == (1, 1)


@pytest.mark.parametrize("given_out", [TransientError("the disk is away"), 60.0, None])
async def test_podgpu_starts_without_it(
    registered_twice: Registered,
    caplog: pytest.LogCaptureFixture,
    given_out: TotalsRestored | Exception | float | None,
) -> None:
    heard, _ = await ran(registered_twice, Ledger(given_out))
    assert restored(heard) == []
    assert heard, "the source speaks"
    assert ("could not restore usage totals" in caplog.text) is (given_out is not None)


async def test_no_one_is_asked_after_a_reload(registered_twice: Registered) -> None:
    ledger = Ledger(REPORTED)
    heard, _ = await ran(registered_twice, ledger, reload=True)
    assert len(restored(heard)) == 1
    assert ledger.asked == 1
