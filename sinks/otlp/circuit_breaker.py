"""A circuit breaker for log records, so that they do not block metrics.

Many receivers of metrics accept no log records: a Collector without a logs pipeline, Prometheus.
Others accept none while their backend is away. Log records and metrics share one queue, and a
record at its head that can't be sent blocks everything behind it.
"""

from dataclasses import replace
from typing import Final

from pipeline.delivery.contract import Outcome, Rejected, Retry
from pipeline.model import NS

NO_LOGS: Final = "no_logs"
"""Rejection reason of log records for a receiver that does not support them."""

_UNSUPPORTED: Final = frozenset(("unimplemented", "http_404", "http_405", "http_501"))
"""Reasons which mean that the receiver does not support log records, whatever the message."""

REOPEN_NS: Final = 600 * NS
"""After this time podgpu tries again whether the receiver supports log records."""

MAX_RETRY_NS: Final = 60 * NS
"""How long log records are retried while the receiver accepts metrics."""

RETRY_PAUSE_NS: Final = 60 * NS
"""Minimum time until podgpu sends log records again; longer if the receiver requests it."""


class CircuitBreaker:
    """Decides whether log records are sent or rejected. Pure: it has no clock and no I/O."""

    def __init__(self) -> None:
        self._refusal: Rejected | None = None
        self._until_ns = 0
        self._retrying_since_ns: int | None = None

    def rejection(self, now_ns: int) -> Rejected | None:
        """Return the rejection of log records while the circuit is open; None to send them.

        Args:
            now_ns: time of the monotonic clock.
        """
        return self._refusal if self._refusal is not None and now_ns < self._until_ns else None

    def on_outcome(self, outcome: Outcome, now_ns: int) -> Outcome:
        """Return the outcome to report for a response other than `Retry`.

        If the receiver does not support log records, this opens the circuit.

        Args:
            outcome: outcome of sending log records.
            now_ns: time of the monotonic clock.
        """
        self._retrying_since_ns = None
        if isinstance(outcome, Rejected) and outcome.reason in _UNSUPPORTED:
            text = f"{outcome.message}; set logs: false, or enable log records in the receiver"
            return self._open(Rejected(NO_LOGS, text), now_ns + REOPEN_NS)
        return outcome

    def on_retry(self, outcome: Retry, now_ns: int, *, metrics: bool) -> Outcome:
        """Return the outcome to report for a `Retry`.

        If metrics have waited for log records for `MAX_RETRY_NS`, this opens the circuit, even if
        the receiver requests a longer pause.

        Args:
            outcome: outcome of sending log records.
            now_ns: time of the monotonic clock.
            metrics: whether the receiver accepts metrics at this time.
        """
        if not metrics:
            self._retrying_since_ns = None
            return outcome
        if self._retrying_since_ns is None:
            self._retrying_since_ns = now_ns
        after = max(outcome.after or 0.0, 0.0)
        left = (MAX_RETRY_NS - (now_ns - self._retrying_since_ns)) / NS
        if self._refusal is None and left > 0:
            return replace(outcome, after=left) if after > left else outcome
        text = (
            f"{outcome.message}; the receiver accepts metrics, so podgpu discards log records for "
            "at least a minute"
        )
        reopen_after_ns = max(RETRY_PAUSE_NS, round(min(after, REOPEN_NS / NS) * NS))
        return self._open(Rejected(outcome.reason, text), now_ns + reopen_after_ns)

    def on_accepted(self) -> bool:
        """Close the circuit: log records were accepted. Return whether it was open."""
        reopened, self._refusal, self._retrying_since_ns = self._refusal is not None, None, None
        return reopened

    def _open(self, refusal: Rejected, until_ns: int) -> Rejected:
        first = self._refusal is None or self._refusal.reason != refusal.reason
        self._until_ns = until_ns
        # The first rejection is logged; later ones are only counted.
        self._refusal = replace(refusal, already_logged=True)
        return refusal if first else self._refusal
