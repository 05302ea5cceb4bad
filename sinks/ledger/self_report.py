"""What the ledger says of itself: its metrics, its log, its troubles."""

from datetime import UTC, datetime
from typing import Final

from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.errors import LedgerError
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS
from sinks.ledger.ledger_file import WriteReport

EMITTED: Final = "podgpu_sink_emitted_total"
DROPPED: Final = "podgpu_sink_dropped_total"
ERRORS: Final = "podgpu_sink_errors_total"


class LedgerReporter:
    """Says each thing once, and counts it each time.

    Args:
        ctx: the sink's.
        place: the file.
    """

    def __init__(self, ctx: SinkContext, place: str) -> None:
        self._ctx = ctx
        self._place = place
        self._fault = ""
        self._untended = ""
        self._fallen = self._lost = 0
        ctx.meter.add(EMITTED, 0)

    def on_written(self, batch: Batch, report: WriteReport) -> None:
        """Tell of a batch that was written."""
        self._ctx.meter.add(EMITTED, len(batch.states))
        for what, count in batch.evicted.items():
            self._ctx.meter.add(DROPPED, count, reason=f"{what}_over")
        if batch.evicted:
            told = ", ".join(f"{count} {what}" for what, count in sorted(batch.evicted.items()))
            warn(self._ctx, "%s couldn't be written for too long: %s are lost", self._place, told)
        if self._fault:
            self._fault = ""
            self._ctx.log.info("%s is written again; nothing of the totals is lost", self._place)
        self.on_report(report)

    def on_report(self, report: WriteReport) -> None:
        """Tell what happened to the file."""
        for name, why in report.quarantined:
            self._ctx.meter.add(ERRORS, operation="read", reason="corrupt")
            text = "%s can't be used (%s): it is set aside as %s, and a new one is begun"
            warn(self._ctx, text, self._place, why, name)
        if report.replaced:
            warn(self._ctx, "somebody has taken %s or its log away: it is opened anew", self._place)
        removed = report.removed
        if removed.large:
            self._ctx.meter.add(DROPPED, removed.large, reason="over_size")
            before = datetime.fromtimestamp(removed.before_ns // NS, UTC)
            text = "%s has reached max_size: what was before %s made room, %d rows"
            warn(self._ctx, text, self._place, f"{before:%Y-%m-%dT%HZ}", removed.large)
        self._ctx.meter.add(DROPPED, removed.old, reason="over_age")
        self._on_retention(report.retention_error)

    def _on_retention(self, error: LedgerError | None) -> None:
        if error is None:
            self._untended = ""
            return
        self._ctx.meter.add(ERRORS, operation="retain", reason=error.reason)
        text, news = str(error), error.problem != self._untended
        self._untended = error.problem
        warn(self._ctx, "nothing old can be removed from it: %s", text, is_new=news)

    def on_invalid(self, count: int) -> None:
        """Tell of accounts that make no sense, and aren't gone on from."""
        if count:
            self._ctx.meter.add(ERRORS, count, operation="recall", reason="corrupt")
            text = "%s: %d accounts in the table state make no sense; their totals begin anew"
            warn(self._ctx, text, self._place, count)

    def on_failure(self, error: LedgerError) -> None:
        """Tell that a commit failed."""
        self._ctx.meter.add(ERRORS, operation="commit", reason=error.reason)
        text = "cannot write the ledger: %s. Nothing is lost: the next commit that works has it all"
        warn(self._ctx, text, str(error), is_new=error.problem != self._fault)
        self._fault = error.problem

    def on_accumulated(self, book: LedgerAccumulator) -> None:
        """Count what the accounts couldn't tell."""
        if book.inconsistent > self._fallen:
            count = book.inconsistent - self._fallen
            self._ctx.meter.add(ERRORS, count, operation="account", reason="other")
            warn(self._ctx, "%d accounts have fallen: a gap stands in their place", count)
        self._ctx.meter.add(
            DROPPED, max(book.missed_holdings - self._lost, 0), reason="holdings_lost"
        )
        self._fallen, self._lost = book.inconsistent, book.missed_holdings
