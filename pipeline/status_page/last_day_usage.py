"""What was used over the last 24 hours: asked of a ledger, while somebody looks at the page."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pipeline.base.clock import Clock
from pipeline.base.errors import ComponentError
from pipeline.component.contracts import UsageHistory
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.ledger.reports import GroupBy, Prices, Report, build_report
from pipeline.model import NS, Instant
from pipeline.model.usage_window import UsageWindow

DAY_NS: Final = 86_400 * NS

GOOD_FOR_NS: Final = 60 * NS
"""How long an answer stands before the ledger is asked again."""

ASK_TIMEOUT: Final = 30.0
"""Seconds for an answer and for grouping it. A ledger whose file doesn't answer says so sooner."""

_BY: Final = (GroupBy("pod"), GroupBy("device"))


Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Starts a task under a name for people."""


@dataclass(frozen=True, slots=True)
class LastDayUsage:
    """What a ledger told last.

    Attributes:
        sink: the ledger's name.
        report: by pods; None where it has told nothing yet.
        devices: by devices; None likewise.
        asked: when it told that; None likewise.
        error: why it could not tell when it was asked last; empty where it could.
    """

    sink: str
    report: Report | None = None
    devices: Report | None = None
    asked: Instant | None = None
    error: str = ""


class LastDayCache:
    """Knows what a ledger told last, and asks it again in the background when that is old.

    Args:
        clock: tells what is old.
        ledgers: returns the ledgers that run, by name; the first is asked.
        spawn: starts a task that ends with the daemon.
    """

    def __init__(
        self, clock: Clock, ledgers: Callable[[], Mapping[str, UsageHistory]], spawn: Spawn
    ) -> None:
        self._clock = clock
        self._keepers = ledgers
        self._spawn = spawn
        self._keeper: UsageHistory | None = None
        self._known: LastDayUsage | None = None
        self._tried: Instant | None = None
        self._asking: asyncio.Task[None] | None = None

    def known(self) -> LastDayUsage | None:
        """Return what is known by now, and see that it doesn't get old; None without a ledger."""
        found = next(iter(self._keepers().items()), None)
        if found is None:
            self._keeper = self._known = self._tried = None
            return None
        name, keeper = found
        # Not by its name: after a reload another one may have that.
        if self._known is None or self._keeper is not keeper:
            self._keeper, self._known, self._tried = keeper, LastDayUsage(name), None
        if (self._asking is None or self._asking.done()) and self._is_old():
            self._tried = self._clock.now()
            self._asking = self._spawn(self._ask(keeper), "the last 24 hours")
        return self._known

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    def _is_old(self) -> bool:
        tried = self._tried
        return tried is None or self._clock.now().mono_ns - tried.mono_ns >= GOOD_FOR_NS

    async def _ask(self, keeper: UsageHistory) -> None:
        now = self._clock.now()
        told: tuple[Report, Report] | str
        try:
            async with asyncio.timeout(ASK_TIMEOUT):
                told = await _reported(
                    await keeper.window(max(now.wall_ns - DAY_NS, 0), now.wall_ns)
                )
        except TimeoutError:
            told = (
                f"no answer for {ASK_TIMEOUT:g} s: grouping it takes long, see what keeps the "
                "node's processors busy"
            )
        except ComponentError as error:
            told = str(error)
        known = self._known
        if known is None or self._keeper is not keeper:
            # Another ledger has taken its place meanwhile.
            return
        if isinstance(told, str):
            self._known = replace(known, error=told)
        else:
            self._known = LastDayUsage(known.sink, *told, now)


async def _reported(window: UsageWindow) -> tuple[Report, Report]:
    """Group it in a thread, by pods and by devices: there may be very many pods."""
    with DaemonExecutor("podgpu-last-day") as thread:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, _grouped, window)


def _grouped(window: UsageWindow) -> tuple[Report, Report]:
    by_pod, by_device = (build_report(window, by, Prices()) for by in _BY)
    return by_pod, by_device
