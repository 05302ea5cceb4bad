"""Usage of the last 24 hours, as a ledger may have reported it."""

from dataclasses import replace

from pipeline.ledger.reports import GroupBy, Prices, build_report
from pipeline.model import Instant
from pipeline.model.ledger_usage import UsageWindow
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.last_day_usage import LastDayUsage
from pipeline.status_page.status_document import StatusDocument
from tests.pipeline.ledger.reports.windows import GPUS, day, identity, usage_row, window
from tests.pipeline.status_page.scenes import two_gpus


def last_day(usage_window: UsageWindow, error: str = "", sink: str = "books") -> LastDayUsage:
    """Return the usage of the last day that a ledger returned 20 s ago."""
    now = two_gpus().now
    read_at = Instant(now.mono_ns - 20 * 10**9, now.wall_ns - 20 * 10**9)
    by_pod, by_device = (
        build_report(usage_window, GroupBy(what), Prices()) for what in ("pod", "device")
    )
    return LastDayUsage(sink, by_pod, by_device, read_at, error)


def input_with(day: LastDayUsage | None) -> StatusInput:
    return replace(two_gpus(), last_day=day)


def status_with(day: LastDayUsage | None) -> StatusDocument:
    return status_of(input_with(day))


def many(count: int = 12) -> UsageWindow:
    """Return the usage of more pods than are shown; each held less than the one before."""
    pods = [
        usage_row(GPUS[0], identity(f"serve-{n:02}-5d8c7b9f64-abcde"), count - n - 1, 0.5, 1)
        for n in range(count)
    ]
    return window([*pods, usage_row(GPUS[0], None, 3, 0, 1)])


DAYS = {
    "a-day": last_day(day()),
    "many": last_day(many()),
    "stale": last_day(day(), "/var/lib/podgpu/ledger.db: the disk does not respond; check it"),
    "unreadable": LastDayUsage("books", error="/var/lib/podgpu/ledger.db: is not there"),
    "not-read-yet": LastDayUsage("books"),
}
