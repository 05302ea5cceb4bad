"""Metrics and log messages of the ledger sink."""

from datetime import UTC, datetime
from typing import Final

from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.ledger.archive_backlog import ArchiveBacklog
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_open import LedgerError
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS
from sinks.ledger.ledger_file import WriteReport

EMITTED: Final = "podgpu_sink_emitted_total"
DROPPED: Final = "podgpu_sink_dropped_total"
ERRORS: Final = "podgpu_sink_errors_total"
PENDING: Final = "podgpu_sink_archive_pending_rows"
WRITTEN: Final = "podgpu_sink_archive_written_timestamp_seconds"


class LedgerReporter:
    """Counts problems of the ledger and logs them.

    A problem that repeats with the same text is logged once until the operation succeeds.

    Args:
        ctx: the context of the sink.
        place: the path of the file.
    """

    def __init__(self, ctx: SinkContext, place: str) -> None:
        self._ctx = ctx
        self._place = place
        self._last_problems: dict[str, str] = {}
        self._inconsistent = self._missed = 0
        ctx.meter.add(EMITTED, 0)

    def on_written(self, batch: Batch, report: WriteReport) -> None:
        """Count and log a batch that was written."""
        self._ctx.meter.add(EMITTED, len(batch.states))
        for kind, count in batch.evicted.items():
            self._ctx.meter.add(DROPPED, count, reason=f"{kind}_over")
        if batch.evicted:
            listed = ", ".join(f"{count} {kind}" for kind, count in sorted(batch.evicted.items()))
            warn(
                self._ctx,
                "%s could not be written for too long: podgpu dropped usage data (%s)",
                self._place,
                listed,
            )
        if self._last_problems.pop("commit", ""):
            self._ctx.log.info("%s can be written again; no totals are lost", self._place)
        self.on_report(report)

    def on_report(self, report: WriteReport) -> None:
        """Count and log what happened to the file."""
        for name, why in report.quarantined:
            self._ctx.meter.add(ERRORS, operation="read", reason="corrupt")
            text = "%s cannot be used (%s): podgpu renamed it to %s, and started a new ledger"
            warn(self._ctx, text, self._place, why, name)
        if report.replaced:
            text = "another program removed or replaced %s or its log: podgpu opens it again"
            warn(self._ctx, text, self._place)
        removed = report.removed
        if removed.unsealed:
            self._ctx.meter.add(DROPPED, removed.unsealed, reason="not_archived")
            text = (
                "%s has reached max_size: podgpu removed %d rows that are not in the archive, and "
                "never will be; check podgpu archive, or raise max_size"
            )
            warn(self._ctx, text, self._place, removed.unsealed)
        if removed.large:
            self._ctx.meter.add(DROPPED, removed.large, reason="over_size")
            before = datetime.fromtimestamp(removed.before_ns // NS, UTC)
            text = "%s has reached max_size: podgpu removed data from before %s (%d rows)"
            warn(self._ctx, text, self._place, f"{before:%Y-%m-%dT%HZ}", removed.large)
        self._ctx.meter.add(DROPPED, removed.old, reason="over_age")
        if report.archive is not None:
            self._on_archive(report.archive)
        if report.retention_error is None:
            self._last_problems.pop("retain", None)
        else:
            self._on_error(
                "retain", report.retention_error, "cannot remove old data from the ledger: %s"
            )

    def _on_archive(self, backlog: ArchiveBacklog) -> None:
        """Show how much is not in the archive, and warn if it is not written for too long."""
        self._ctx.meter.set(PENDING, backlog.rows)
        self._ctx.meter.set(WRITTEN, (backlog.written_ns or 0) / NS)
        if not backlog.is_overdue(self._ctx.clock.now().wall_ns):
            if self._last_problems.pop("archive", ""):
                self._ctx.log.info("%s is written to its archive again", self._place)
            return
        since = "never"
        if backlog.written_ns is not None:
            since = f"last {datetime.fromtimestamp(backlog.written_ns // NS, UTC):%Y-%m-%dT%H:%MZ}"
        text = (
            "%s is not written to its archive (%s): %d rows wait in the ledger; see the log of "
            "podgpu archive"
        )
        is_new = self._last_problems.get("archive") != since
        self._last_problems["archive"] = since
        warn(self._ctx, text, self._place, since, backlog.rows, is_new=is_new)

    def on_invalid(self, count: int) -> None:
        """Count and log stored accounts that are invalid: their totals are not continued."""
        if count:
            self._ctx.meter.add(ERRORS, count, operation="recall", reason="corrupt")
            text = "%s: %d usage accounts in the table state are invalid; their totals start at 0"
            warn(self._ctx, text, self._place, count)

    def on_failure(self, error: LedgerError) -> None:
        """Count and log a commit that failed."""
        text = "cannot write the ledger: %s. No data is lost: podgpu keeps it and tries again"
        self._on_error("commit", error, text)

    def _on_error(self, operation: str, error: LedgerError, text: str) -> None:
        self._ctx.meter.add(ERRORS, operation=operation, reason=error.reason)
        is_new = error.problem != self._last_problems.get(operation)
        self._last_problems[operation] = error.problem
        warn(self._ctx, text, str(error), is_new=is_new)

    def on_accumulated(self, accumulator: LedgerAccumulator) -> None:
        """Count and log inconsistent accounts, and count missed holdings."""
        if accumulator.inconsistent > self._inconsistent:
            count = accumulator.inconsistent - self._inconsistent
            self._ctx.meter.add(ERRORS, count, operation="account", reason="other")
            text = "%d usage accounts have lower totals than before; a gap is recorded instead"
            warn(self._ctx, text, count)
        self._ctx.meter.add(
            DROPPED, max(accumulator.missed_holdings - self._missed, 0), reason="holdings_lost"
        )
        self._inconsistent, self._missed = accumulator.inconsistent, accumulator.missed_holdings
