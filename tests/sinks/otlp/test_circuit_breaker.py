"""Log records that aren't taken neither hold up metrics nor are asked about again and again."""

import pytest

from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry
from pipeline.model import NS
from sinks.otlp.circuit_breaker import AGAIN_NS, LATER_NS, NO_LOGS, PATIENCE_NS, Admission

BUSY = Retry("http_503", "busy")


@pytest.mark.parametrize("reason", ["unimplemented", "http_404", "http_405", "http_501"])
def test_a_receiver_that_takes_none_is_told_of_once_and_asked_later(reason: str) -> None:
    admission, none = Admission(), Rejected(reason, "no such service")
    first = admission.answered(none, 0)
    assert isinstance(first, Rejected)
    assert (first.reason, first.told) == (NO_LOGS, False)
    assert first.message.startswith("no such service; set logs: false")
    for now_ns in (1, LATER_NS - 1):
        refusal = admission.closed(now_ns)
        assert refusal is not None
        assert (refusal.reason, refusal.told) == (NO_LOGS, True)
    assert admission.closed(LATER_NS) is None
    again = admission.answered(none, LATER_NS)
    assert isinstance(again, Rejected)
    assert again.told
    assert admission.closed(2 * LATER_NS - 1) is not None


def test_it_is_told_of_again_once_some_were_taken_in_between() -> None:
    admission = Admission()
    assert not admission.taken()
    admission.answered(Rejected("http_404", ""), 0)
    assert admission.taken()
    assert admission.closed(1) is None
    again = admission.answered(Rejected("http_404", ""), 2)
    assert isinstance(again, Rejected)
    assert not again.told


@pytest.mark.parametrize(
    "outcome", [Acked(), Rejected("http_400", "bad"), Rejected("http_401", "")]
)
def test_other_answers_stay_what_they_are(outcome: Outcome) -> None:
    admission = Admission()
    assert admission.answered(outcome, 0) is outcome
    assert admission.closed(1) is None


def test_while_nothing_is_taken_log_records_wait_as_long_as_metrics() -> None:
    admission = Admission()
    for second in range(0, 7200, 30):
        assert admission.waits(BUSY, second * NS, metrics=False) is BUSY
    assert admission.closed(7200 * NS) is None


def test_metrics_wait_for_them_for_a_minute_and_no_longer() -> None:
    admission = Admission()
    assert admission.waits(BUSY, 0, metrics=True) is BUSY
    assert admission.waits(BUSY, PATIENCE_NS - 1, metrics=True) is BUSY
    given_up = admission.waits(BUSY, PATIENCE_NS, metrics=True)
    assert isinstance(given_up, Rejected)
    assert (given_up.reason, given_up.told) == ("http_503", False)
    assert "wait for log records no longer" in given_up.message
    assert admission.closed(PATIENCE_NS + AGAIN_NS - 1) is not None
    # It is tried once more, and nothing waits for it.
    later_ns = PATIENCE_NS + AGAIN_NS
    assert admission.closed(later_ns) is None
    again = admission.waits(BUSY, later_ns, metrics=True)
    assert isinstance(again, Rejected)
    assert again.told
    assert admission.closed(later_ns + AGAIN_NS) is None
    assert admission.taken()
    assert admission.waits(BUSY, later_ns + AGAIN_NS, metrics=True) is BUSY, "patient again"


def test_patience_begins_when_metrics_are_taken() -> None:
    admission = Admission()
    admission.waits(BUSY, 0, metrics=True)
    admission.waits(BUSY, PATIENCE_NS - 1, metrics=False)
    assert admission.waits(BUSY, PATIENCE_NS + 1, metrics=True) is BUSY
    admission.answered(Acked(), PATIENCE_NS + 2)
    assert admission.waits(BUSY, 2 * PATIENCE_NS, metrics=True) is BUSY


@pytest.mark.parametrize("after", [61.0, 300.0, 1e300, float("inf")])
def test_metrics_wait_no_longer_because_the_receiver_of_log_records_asks_for_it(
    after: float,
) -> None:
    admission, asked = Admission(), Retry("http_429", "slowly", after)
    first = admission.waits(asked, 0, metrics=True)
    assert first == Retry("http_429", "slowly", PATIENCE_NS / NS)
    second = admission.waits(asked, PATIENCE_NS // 2, metrics=True)
    assert second == Retry("http_429", "slowly", PATIENCE_NS / 2 / NS)
    assert isinstance(admission.waits(asked, PATIENCE_NS, metrics=True), Rejected)
    # Log records are left alone for so long, as far as that is sensible.
    until_ns = PATIENCE_NS + round(min(after * NS, LATER_NS))
    assert admission.closed(until_ns - 1) is not None
    assert admission.closed(until_ns) is None


@pytest.mark.parametrize("after", [None, 0.0, -5.0, 20.0])
def test_what_is_asked_for_is_granted_within_a_minute(after: float | None) -> None:
    asked = Retry("http_429", "slowly", after)
    assert Admission().waits(asked, 0, metrics=True) is asked


def test_with_metrics_they_wait_as_long_as_is_asked_for() -> None:
    asked = Retry("http_429", "slowly", 300.0)
    assert Admission().waits(asked, 0, metrics=False) is asked
