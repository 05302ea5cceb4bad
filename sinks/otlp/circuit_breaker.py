"""Whether log records are taken: they must not hold up metrics, nor be asked about again and again.

Many receivers of metrics take no log records: a Collector without a pipeline for them, Prometheus.
Others take none for a while, when what is behind them is away. Both stand in one queue with
metrics, and what can't be sent at its head holds up all that is behind it.
"""

from dataclasses import replace
from typing import Final

from pipeline.delivery.contract import Outcome, Rejected, Retry
from pipeline.model import NS

NO_LOGS: Final = "no_logs"
"""Why log records are rejected by a receiver that has no use for any."""

_NONE: Final = frozenset(("unimplemented", "http_404", "http_405", "http_501"))
"""Refusals of the signal, and not of the message."""

REOPEN_NS: Final = 600 * NS
"""After this time a receiver that takes none is asked again."""

MAX_RETRY_NS: Final = 60 * NS
"""For so long metrics wait for log records that aren't taken now."""

RETRY_PAUSE_NS: Final = 60 * NS
"""After this time it is tried again whether they are taken now, or later if they are asked to."""


class CircuitBreaker:
    """Remembers how log records fare. Pure."""

    def __init__(self) -> None:
        self._refusal: Rejected | None = None
        self._until_ns = 0
        self._since_ns: int | None = None

    def rejection(self, now_ns: int) -> Rejected | None:
        """Return what becomes of log records without asking; None when they are to be sent.

        Args:
            now_ns: the monotonic clock.
        """
        return self._refusal if self._refusal is not None and now_ns < self._until_ns else None

    def on_outcome(self, outcome: Outcome, now_ns: int) -> Outcome:
        """Return what an answer comes to that isn't "not now".

        Args:
            outcome: what was answered.
            now_ns: the monotonic clock.
        """
        self._since_ns = None
        if isinstance(outcome, Rejected) and outcome.reason in _NONE:
            text = f"{outcome.message}; set logs: false, or let it take log records"
            return self._refused(Rejected(NO_LOGS, text), now_ns + REOPEN_NS)
        return outcome

    def on_retry(self, outcome: Retry, now_ns: int, *, metrics: bool) -> Outcome:
        """Return what "not now" comes to.

        However long the receiver wants to be left alone with log records, metrics wait no longer.

        Args:
            outcome: what was answered.
            now_ns: the monotonic clock.
            metrics: whether metrics are taken now.
        """
        if not metrics:
            self._since_ns = None
            return outcome
        if self._since_ns is None:
            self._since_ns = now_ns
        after = max(outcome.after or 0.0, 0.0)
        left = (MAX_RETRY_NS - (now_ns - self._since_ns)) / NS
        if self._refusal is None and left > 0:
            return replace(outcome, after=left) if after > left else outcome
        text = f"{outcome.message}; metrics are taken, and wait for log records no longer"
        again_ns = max(RETRY_PAUSE_NS, round(min(after, REOPEN_NS / NS) * NS))
        return self._refused(Rejected(outcome.reason, text), now_ns + again_ns)

    def on_accepted(self) -> bool:
        """Note that log records were taken; whether that is new."""
        new, self._refusal, self._since_ns = self._refusal is not None, None, None
        return new

    def _refused(self, refusal: Rejected, until_ns: int) -> Rejected:
        first = self._refusal is None or self._refusal.reason != refusal.reason
        self._until_ns = until_ns
        # What comes after it is counted and no more.
        self._refusal = replace(refusal, already_logged=True)
        return refusal if first else self._refusal
