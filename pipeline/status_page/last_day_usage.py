"""Usage of the last 24 hours and 28 days, read from a ledger while the status page is viewed."""

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
from pipeline.model.ledger_usage import HourTotal, UsageWindow

DAY_NS: Final = 86_400 * NS

MOST_DAYS: Final = 28
"""Number of days (UTC), with the present one, whose totals are read."""

GOOD_FOR_NS: Final = 60 * NS
"""Nanoseconds for which a result is used before the ledger is queried again."""

QUERY_TIMEOUT: Final = 30.0
"""Seconds for reading and grouping. If the file does not respond, the ledger fails earlier."""

_BY: Final = (GroupBy("pod"), GroupBy("device"))


Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Starts a task. The text is its name in log messages."""


@dataclass(frozen=True, slots=True)
class LastDayUsage:
    """The last result of a ledger.

    Attributes:
        sink: name of the ledger's sink.
        report: usage by pod; None before the first result.
        devices: usage by device; None before the first result.
        read_at: time of the result; None before the first result.
        error: error of the last query; empty if the query succeeded.
        hours: total usage of each hour of the last days with usage data, the oldest first.
    """

    sink: str
    report: Report | None = None
    devices: Report | None = None
    read_at: Instant | None = None
    error: str = ""
    hours: tuple[HourTotal, ...] = ()


class LastDayCache:
    """Caches the last result of a ledger, and queries it again in the background when it is old.

    Args:
        clock: clock that measures the age of the result.
        ledgers: function that returns the running ledgers by name. The first ledger is used.
        spawn: function that starts a task, which ends with the daemon.
    """

    def __init__(
        self, clock: Clock, ledgers: Callable[[], Mapping[str, UsageHistory]], spawn: Spawn
    ) -> None:
        self._clock = clock
        self._ledgers = ledgers
        self._spawn = spawn
        self._ledger: UsageHistory | None = None
        self._known: LastDayUsage | None = None
        self._queried_at: Instant | None = None
        self._query: asyncio.Task[None] | None = None

    def known(self) -> LastDayUsage | None:
        """Return the last result; None without a ledger. If the result is old, start a query.

        Before the first result, the returned object has no reports.
        """
        found = next(iter(self._ledgers().items()), None)
        if found is None:
            self._ledger = self._known = self._queried_at = None
            return None
        name, ledger = found
        # Compared by identity: after a reload, another ledger can have the same name.
        if self._known is None or self._ledger is not ledger:
            self._ledger, self._known, self._queried_at = ledger, LastDayUsage(name), None
        now, tried = self._clock.now(), self._queried_at
        is_old = tried is None or now.mono_ns - tried.mono_ns >= GOOD_FOR_NS
        if is_old and (self._query is None or self._query.done()):
            self._queried_at = now
            self._query = self._spawn(self._run_query(ledger), "the last 24 hours")
        return self._known

    def close(self) -> None:
        """Cancel a running query."""
        if self._query is not None:
            self._query.cancel()

    async def _run_query(self, ledger: UsageHistory) -> None:
        now = self._clock.now()
        error, reports = "", None
        hours: tuple[HourTotal, ...] = ()
        try:
            async with asyncio.timeout(QUERY_TIMEOUT):
                window = await ledger.window(max(now.wall_ns - DAY_NS, 0), now.wall_ns)
                first_day = now.wall_ns // DAY_NS - MOST_DAYS + 1
                hours = await ledger.hours(max(first_day * DAY_NS, 0), now.wall_ns)
                reports = await _group(window)
        except TimeoutError:
            error = (
                f"no response for {QUERY_TIMEOUT:g} s: computing the usage of the last day takes "
                "too long; check the CPU load of the node"
            )
        except ComponentError as failure:
            error = str(failure)
        # Another ledger may have replaced it in the meantime.
        if self._known is not None and self._ledger is ledger:
            self._known = (
                replace(self._known, error=error)
                if reports is None
                else LastDayUsage(self._known.sink, *reports, now, hours=hours)
            )


async def _group(window: UsageWindow) -> tuple[Report, Report]:
    """Group the usage by pod and by device in a thread, because there can be very many pods."""
    with DaemonExecutor("podgpu-last-day") as thread:
        loop = asyncio.get_running_loop()
        by_pod, by_device = [
            await loop.run_in_executor(thread, build_report, window, by, Prices()) for by in _BY
        ]
    return by_pod, by_device
