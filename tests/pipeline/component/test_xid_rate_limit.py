"""The limit of reported XID errors for each device and code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.component.xid_rate_limit import _REMEMBERED, ERRORS_PER_SECOND, PendingXids
from pipeline.model import NS


def admitted(rates: PendingXids[int], *at: float, device: str = "a", code: int = 31) -> int:
    return sum(rates.admits(device, code, round(seconds * NS)) for seconds in at)


def test_errors_are_limited_at_one_time_and_for_each_second() -> None:
    rates: PendingXids[int] = PendingXids()
    assert admitted(rates, *[0.0] * 100) == ERRORS_PER_SECOND
    assert admitted(rates, 0.05) == 0
    assert admitted(rates, *[0.11] * 100) == 1
    assert admitted(rates, *[1.11] * 100) == ERRORS_PER_SECOND
    assert admitted(rates, *[60.0] * 100) == ERRORS_PER_SECOND, (
        "a long time without errors does not raise the limit"
    )


def test_each_device_and_code_has_a_separate_limit() -> None:
    rates: PendingXids[int] = PendingXids()
    assert admitted(rates, *[0.0] * 100) == ERRORS_PER_SECOND
    assert admitted(rates, *[0.0] * 100, code=79) == ERRORS_PER_SECOND
    assert admitted(rates, *[0.0] * 100, device="b") == ERRORS_PER_SECOND
    assert admitted(rates, 0.0) == 0


def test_the_number_of_remembered_devices_and_codes_is_limited() -> None:
    rates: PendingXids[int] = PendingXids()
    for code in range(3 * _REMEMBERED):
        rates.admits("a", code, 0)
    assert len(rates._paid_ns) == _REMEMBERED


@given(st.lists(st.floats(0, 5), max_size=300))
def test_errors_never_exceed_the_rate(times: list[float]) -> None:
    rates: PendingXids[int] = PendingXids()
    kept = [at for at in sorted(times) if rates.admits("a", 31, round(at * NS))]
    for at in kept:
        within = [other for other in kept if at <= other < at + 1]
        assert len(within) <= 2 * ERRORS_PER_SECOND
    assert len(kept) <= ERRORS_PER_SECOND * (1 + 5) + 1


def test_pending_errors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.component.xid_rate_limit._MAX_PENDING", 3)
    waiting: PendingXids[int] = PendingXids()
    added = [waiting.add(code, "a", code, 0) for code in range(5)]
    assert added == [True, True, True, False, False]
    assert list(waiting.pending) == [0, 1, 2]
    waiting.mark_reported(2)
    assert waiting.add(9, "a", 9, 0)
    assert list(waiting.pending) == [2, 9]
