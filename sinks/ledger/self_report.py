"""What the ledger says of itself: its metrics, its log, its troubles."""

from datetime import UTC, datetime
from typing import Final

from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.ledger.change_tracker import Book
from pipeline.ledger.errors import LedgerError
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS
from sinks.ledger.ledger_file import Report

EMITTED: Final = "podgpu_sink_emitted_total"
DROPPED: Final = "podgpu_sink_dropped_total"
ERRORS: Final = "podgpu_sink_errors_total"


class Telling:
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

    def written(self, batch: Batch, report: Report) -> None:
        """Tell of a batch that was written."""
        self._ctx.meter.add(EMITTED, len(batch.states))
        for what, count in batch.let_go.items():
            self._ctx.meter.add(DROPPED, count, reason=f"{what}_over")
        if batch.let_go:
            told = ", ".join(f"{count} {what}" for what, count in sorted(batch.let_go.items()))
            warn(self._ctx, "%s couldn't be written for too long: %s are lost", self._place, told)
        if self._fault:
            self._fault = ""
            self._ctx.log.info("%s is written again; nothing of the totals is lost", self._place)
        self.reported(report)

    def reported(self, report: Report) -> None:
        """Tell what happened to the file."""
        for name, why in report.aside:
            self._ctx.meter.add(ERRORS, operation="read", reason="corrupt")
            text = "%s can't be used (%s): it is set aside as %s, and a new one is begun"
            warn(self._ctx, text, self._place, why, name)
        if report.moved:
            warn(self._ctx, "somebody has taken %s or its log away: it is opened anew", self._place)
        removed = report.removed
        if removed.large:
            self._ctx.meter.add(DROPPED, removed.large, reason="over_size")
            before = datetime.fromtimestamp(removed.before_ns // NS, UTC)
            text = "%s has reached max_size: what was before %s made room, %d rows"
            warn(self._ctx, text, self._place, f"{before:%Y-%m-%dT%HZ}", removed.large)
        self._ctx.meter.add(DROPPED, removed.old, reason="over_age")
        self._tend(report.untended)

    def _tend(self, error: LedgerError | None) -> None:
        if error is None:
            self._untended = ""
            return
        self._ctx.meter.add(ERRORS, operation="retain", reason=error.reason)
        text, news = str(error), error.saw != self._untended
        self._untended = error.saw
        warn(self._ctx, "nothing old can be removed from it: %s", text, news=news)

    def unsound(self, count: int) -> None:
        """Tell of accounts that make no sense, and aren't gone on from."""
        if count:
            self._ctx.meter.add(ERRORS, count, operation="recall", reason="corrupt")
            text = "%s: %d accounts in the table state make no sense; their totals begin anew"
            warn(self._ctx, text, self._place, count)

    def failed(self, error: LedgerError) -> None:
        """Tell that a commit failed."""
        self._ctx.meter.add(ERRORS, operation="commit", reason=error.reason)
        text = "cannot write the ledger: %s. Nothing is lost: the next commit that works has it all"
        warn(self._ctx, text, str(error), news=error.saw != self._fault)
        self._fault = error.saw

    def booked(self, book: Book) -> None:
        """Count what the accounts couldn't tell."""
        if book.fallen > self._fallen:
            count = book.fallen - self._fallen
            self._ctx.meter.add(ERRORS, count, operation="account", reason="other")
            warn(self._ctx, "%d accounts have fallen: a gap stands in their place", count)
        self._ctx.meter.add(DROPPED, max(book.lost - self._lost, 0), reason="holdings_lost")
        self._fallen, self._lost = book.fallen, book.lost
