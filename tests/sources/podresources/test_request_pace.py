"""When the kubelet is requested; times are plain numbers."""

import random
from itertools import pairwise

import pytest

from sources.podresources.kubelet_connection import Result
from sources.podresources.request_pace import RequestSchedule

MS = 1_000_000
S = 1000 * MS


@pytest.fixture
def schedule() -> RequestSchedule:
    return RequestSchedule(10 * S, random.Random(1))


def request(schedule: RequestSchedule, now: int) -> bool:
    is_full = schedule.record_request(now)
    schedule.record_response()
    return is_full


def test_the_first_request_is_immediate_and_then_at_each_interval(
    schedule: RequestSchedule,
) -> None:
    assert schedule.next_ns == 0
    assert request(schedule, 0) is True
    assert schedule.next_ns == 10 * S
    assert request(schedule, 12 * S) is True
    assert schedule.next_ns == 22 * S


def test_a_hint_causes_a_request_and_does_not_shift_the_interval(schedule: RequestSchedule) -> None:
    request(schedule, 0)
    schedule.request_soon()
    assert schedule.next_ns <= 3 * S
    assert request(schedule, 3 * S) is False
    assert schedule.next_ns == 10 * S


def test_requests_by_hints_have_a_minimum_distance(schedule: RequestSchedule) -> None:
    request(schedule, 0)
    schedule.request_soon()
    assert schedule.next_ns == 100 * MS


def test_a_hint_during_a_request_causes_one_more_request(schedule: RequestSchedule) -> None:
    schedule.record_request(0)
    schedule.request_soon()
    schedule.record_response()
    assert schedule.next_ns == 100 * MS
    request(schedule, 100 * MS)
    assert schedule.next_ns == 10 * S


@pytest.mark.parametrize(
    ("result", "delays", "expected"),
    [
        ("unreachable", [0.25, 0.5, 1, 2, 4, 8, 10, 10], [False] + [True] * 7),
        ("rejected", [1, 2, 4, 8, 16, 32, 60, 60], [False] + [True] * 7),
        ("timeout", [10] * 3, [True] * 3),
        ("too_large", [10] * 3, [True] * 3),
        ("failed", [10] * 3, [True] * 3),
        ("unimplemented", [10] * 3, [True] * 3),
    ],
)
def test_each_kind_of_failure_has_its_delays(
    schedule: RequestSchedule, result: Result, delays: list[float], expected: list[bool]
) -> None:
    now = 0
    are_reported = []
    for delay in delays:
        schedule.record_request(now)
        are_reported.append(schedule.record_failure(now, result))
        schedule.request_soon()  # hints do not shorten the delay
        waited = (schedule.next_ns - now) / S
        assert delay <= waited <= delay * 1.25
        now = schedule.next_ns
    assert are_reported == expected
    assert request(schedule, now) is True
    schedule.record_request(now + 10 * S)
    assert schedule.record_failure(now + 10 * S, "unreachable") is False


def test_an_unconfirmed_response_is_requested_again_soon(schedule: RequestSchedule) -> None:
    schedule.record_request(0)
    schedule.retry_soon(0)
    schedule.request_soon()
    assert schedule.next_ns == S // 2
    assert request(schedule, S // 2) is True
    assert schedule.next_ns == S // 2 + 10 * S


def test_a_new_socket_is_requested_without_the_delay_of_failures(schedule: RequestSchedule) -> None:
    request(schedule, 0)
    schedule.record_request(10 * S)
    schedule.record_failure(10 * S, "rejected")
    schedule.reset()
    assert schedule.next_ns == 10 * S + 100 * MS
    assert request(schedule, 11 * S) is True


A = ("ml", "a")
B = ("ml", "b")


def test_lists_with_unprepared_claims_are_repeated_with_growing_delays(
    schedule: RequestSchedule,
) -> None:
    times = [0]
    for _ in range(9):
        schedule.record_request(times[-1])
        schedule.record_response((A,))
        times.append(schedule.next_ns)
    gaps = [(later - earlier) / S for earlier, later in pairwise(times)]
    # The interval ends after 10 s, too.
    assert gaps == [0.25, 0.5, 1, 2, 4, 2.25, 10, 10, 10]


def test_only_another_pod_with_unprepared_claims_shortens_the_delay(
    schedule: RequestSchedule,
) -> None:
    now = 0
    for unprepared, gap in (((A,), 0.25), ((A,), 0.5), ((A, B), 0.25), ((B,), 0.5), ((B,), 1)):
        schedule.record_request(now)
        schedule.record_response(unprepared)
        assert schedule.next_ns == now + gap * S
        now = schedule.next_ns
    assert request(schedule, now) is False
    assert schedule.next_ns == 10 * S


def test_a_repeated_list_does_not_shift_the_interval(schedule: RequestSchedule) -> None:
    schedule.record_request(0)
    schedule.record_response((A,))
    assert schedule.record_request(250 * MS) is False
    schedule.record_response()
    assert schedule.next_ns == 10 * S
