"""A receiver that does not accept log records delays no metrics and gets few attempts."""

import pytest

from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry
from pipeline.model import NS
from sinks.otlp.circuit_breaker import (
    MAX_RETRY_NS,
    NO_LOGS,
    REOPEN_NS,
    RETRY_PAUSE_NS,
    CircuitBreaker,
)

BUSY = Retry("http_503", "busy")


@pytest.mark.parametrize("reason", ["unimplemented", "http_404", "http_405", "http_501"])
def test_missing_log_support_is_logged_once_and_tried_again_later(reason: str) -> None:
    breaker, not_supported = CircuitBreaker(), Rejected(reason, "no such service")
    first = breaker.on_outcome(not_supported, 0)
    assert isinstance(first, Rejected)
    assert (first.reason, first.already_logged) == (NO_LOGS, False)
    assert first.message.startswith("no such service; set logs: false")
    for now_ns in (1, REOPEN_NS - 1):
        refusal = breaker.rejection(now_ns)
        assert refusal is not None
        assert (refusal.reason, refusal.already_logged) == (NO_LOGS, True)
    assert breaker.rejection(REOPEN_NS) is None
    again = breaker.on_outcome(not_supported, REOPEN_NS)
    assert isinstance(again, Rejected)
    assert again.already_logged
    assert breaker.rejection(2 * REOPEN_NS - 1) is not None


def test_missing_log_support_is_logged_again_after_accepted_records() -> None:
    breaker = CircuitBreaker()
    assert not breaker.on_accepted()
    breaker.on_outcome(Rejected("http_404", ""), 0)
    assert breaker.on_accepted()
    assert breaker.rejection(1) is None
    again = breaker.on_outcome(Rejected("http_404", ""), 2)
    assert isinstance(again, Rejected)
    assert not again.already_logged


@pytest.mark.parametrize(
    "outcome", [Acked(), Rejected("http_400", "bad"), Rejected("http_401", "")]
)
def test_other_outcomes_are_returned_unchanged(outcome: Outcome) -> None:
    breaker = CircuitBreaker()
    assert breaker.on_outcome(outcome, 0) is outcome
    assert breaker.rejection(1) is None


def test_log_records_wait_while_metrics_are_not_accepted_either() -> None:
    breaker = CircuitBreaker()
    for second in range(0, 7200, 30):
        assert breaker.on_retry(BUSY, second * NS, metrics=False) is BUSY
    assert breaker.rejection(7200 * NS) is None


def test_metrics_wait_for_log_records_for_a_minute_at_most() -> None:
    breaker = CircuitBreaker()
    assert breaker.on_retry(BUSY, 0, metrics=True) is BUSY
    assert breaker.on_retry(BUSY, MAX_RETRY_NS - 1, metrics=True) is BUSY
    given_up = breaker.on_retry(BUSY, MAX_RETRY_NS, metrics=True)
    assert isinstance(given_up, Rejected)
    assert (given_up.reason, given_up.already_logged) == ("http_503", False)
    assert "so podgpu discards log records for at least a minute" in given_up.message
    assert breaker.rejection(MAX_RETRY_NS + RETRY_PAUSE_NS - 1) is not None
    # Then one attempt is made, and metrics do not wait for it.
    later_ns = MAX_RETRY_NS + RETRY_PAUSE_NS
    assert breaker.rejection(later_ns) is None
    again = breaker.on_retry(BUSY, later_ns, metrics=True)
    assert isinstance(again, Rejected)
    assert again.already_logged
    assert breaker.rejection(later_ns + RETRY_PAUSE_NS) is None
    assert breaker.on_accepted()
    assert breaker.on_retry(BUSY, later_ns + RETRY_PAUSE_NS, metrics=True) is BUSY, (
        "after success, metrics wait again"
    )


def test_the_minute_starts_when_metrics_are_accepted() -> None:
    breaker = CircuitBreaker()
    breaker.on_retry(BUSY, 0, metrics=True)
    breaker.on_retry(BUSY, MAX_RETRY_NS - 1, metrics=False)
    assert breaker.on_retry(BUSY, MAX_RETRY_NS + 1, metrics=True) is BUSY
    breaker.on_outcome(Acked(), MAX_RETRY_NS + 2)
    assert breaker.on_retry(BUSY, 2 * MAX_RETRY_NS, metrics=True) is BUSY


@pytest.mark.parametrize("after", [61.0, 300.0, 1e300, float("inf")])
def test_a_long_retry_after_for_log_records_does_not_delay_metrics(
    after: float,
) -> None:
    breaker, retry = CircuitBreaker(), Retry("http_429", "slowly", after)
    first = breaker.on_retry(retry, 0, metrics=True)
    assert first == Retry("http_429", "slowly", MAX_RETRY_NS / NS)
    second = breaker.on_retry(retry, MAX_RETRY_NS // 2, metrics=True)
    assert second == Retry("http_429", "slowly", MAX_RETRY_NS / 2 / NS)
    assert isinstance(breaker.on_retry(retry, MAX_RETRY_NS, metrics=True), Rejected)
    # Log records are not sent for this time, up to REOPEN_NS.
    until_ns = MAX_RETRY_NS + round(min(after * NS, REOPEN_NS))
    assert breaker.rejection(until_ns - 1) is not None
    assert breaker.rejection(until_ns) is None


@pytest.mark.parametrize("after", [None, 0.0, -5.0, 20.0])
def test_a_short_retry_after_is_obeyed(after: float | None) -> None:
    retry = Retry("http_429", "slowly", after)
    assert CircuitBreaker().on_retry(retry, 0, metrics=True) is retry


def test_a_long_retry_after_is_obeyed_while_metrics_wait_too() -> None:
    retry = Retry("http_429", "slowly", 300.0)
    assert CircuitBreaker().on_retry(retry, 0, metrics=False) is retry
