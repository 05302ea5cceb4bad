"""Log records that aren't taken neither hold up metrics nor are asked about again and again."""

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
def test_a_receiver_that_takes_none_is_reported_of_once_and_asked_later(reason: str) -> None:
    admission, none = CircuitBreaker(), Rejected(reason, "no such service")
    first = admission.on_outcome(none, 0)
    assert isinstance(first, Rejected)
    assert (first.reason, first.already_logged) == (NO_LOGS, False)
    assert first.message.startswith("no such service; set logs: false")
    for now_ns in (1, REOPEN_NS - 1):
        refusal = admission.rejection(now_ns)
        assert refusal is not None
        assert (refusal.reason, refusal.already_logged) == (NO_LOGS, True)
    assert admission.rejection(REOPEN_NS) is None
    again = admission.on_outcome(none, REOPEN_NS)
    assert isinstance(again, Rejected)
    assert again.already_logged
    assert admission.rejection(2 * REOPEN_NS - 1) is not None


def test_it_is_reported_of_again_once_some_were_taken_in_between() -> None:
    admission = CircuitBreaker()
    assert not admission.on_accepted()
    admission.on_outcome(Rejected("http_404", ""), 0)
    assert admission.on_accepted()
    assert admission.rejection(1) is None
    again = admission.on_outcome(Rejected("http_404", ""), 2)
    assert isinstance(again, Rejected)
    assert not again.already_logged


@pytest.mark.parametrize(
    "outcome", [Acked(), Rejected("http_400", "bad"), Rejected("http_401", "")]
)
def test_other_answers_stay_what_they_are(outcome: Outcome) -> None:
    admission = CircuitBreaker()
    assert admission.on_outcome(outcome, 0) is outcome
    assert admission.rejection(1) is None


def test_while_nothing_is_taken_log_records_wait_as_long_as_metrics() -> None:
    admission = CircuitBreaker()
    for second in range(0, 7200, 30):
        assert admission.on_retry(BUSY, second * NS, metrics=False) is BUSY
    assert admission.rejection(7200 * NS) is None


def test_metrics_wait_for_them_for_a_minute_and_no_longer() -> None:
    admission = CircuitBreaker()
    assert admission.on_retry(BUSY, 0, metrics=True) is BUSY
    assert admission.on_retry(BUSY, MAX_RETRY_NS - 1, metrics=True) is BUSY
    given_up = admission.on_retry(BUSY, MAX_RETRY_NS, metrics=True)
    assert isinstance(given_up, Rejected)
    assert (given_up.reason, given_up.already_logged) == ("http_503", False)
    assert "so log records are dropped for now" in given_up.message
    assert admission.rejection(MAX_RETRY_NS + RETRY_PAUSE_NS - 1) is not None
    # It is tried once more, and nothing waits for it.
    later_ns = MAX_RETRY_NS + RETRY_PAUSE_NS
    assert admission.rejection(later_ns) is None
    again = admission.on_retry(BUSY, later_ns, metrics=True)
    assert isinstance(again, Rejected)
    assert again.already_logged
    assert admission.rejection(later_ns + RETRY_PAUSE_NS) is None
    assert admission.on_accepted()
    assert admission.on_retry(BUSY, later_ns + RETRY_PAUSE_NS, metrics=True) is BUSY, (
        "patient again"
    )


def test_patience_begins_when_metrics_are_taken() -> None:
    admission = CircuitBreaker()
    admission.on_retry(BUSY, 0, metrics=True)
    admission.on_retry(BUSY, MAX_RETRY_NS - 1, metrics=False)
    assert admission.on_retry(BUSY, MAX_RETRY_NS + 1, metrics=True) is BUSY
    admission.on_outcome(Acked(), MAX_RETRY_NS + 2)
    assert admission.on_retry(BUSY, 2 * MAX_RETRY_NS, metrics=True) is BUSY


@pytest.mark.parametrize("after", [61.0, 300.0, 1e300, float("inf")])
def test_metrics_wait_no_longer_because_the_receiver_of_log_records_asks_for_it(
    after: float,
) -> None:
    admission, asked = CircuitBreaker(), Retry("http_429", "slowly", after)
    first = admission.on_retry(asked, 0, metrics=True)
    assert first == Retry("http_429", "slowly", MAX_RETRY_NS / NS)
    second = admission.on_retry(asked, MAX_RETRY_NS // 2, metrics=True)
    assert second == Retry("http_429", "slowly", MAX_RETRY_NS / 2 / NS)
    assert isinstance(admission.on_retry(asked, MAX_RETRY_NS, metrics=True), Rejected)
    # Log records are left alone for so long, as far as that is sensible.
    until_ns = MAX_RETRY_NS + round(min(after * NS, REOPEN_NS))
    assert admission.rejection(until_ns - 1) is not None
    assert admission.rejection(until_ns) is None


@pytest.mark.parametrize("after", [None, 0.0, -5.0, 20.0])
def test_what_is_asked_for_is_granted_within_a_minute(after: float | None) -> None:
    asked = Retry("http_429", "slowly", after)
    assert CircuitBreaker().on_retry(asked, 0, metrics=True) is asked


def test_with_metrics_they_wait_as_long_as_is_asked_for() -> None:
    asked = Retry("http_429", "slowly", 300.0)
    assert CircuitBreaker().on_retry(asked, 0, metrics=False) is asked
