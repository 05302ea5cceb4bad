"""When the kubelet is requested; times are plain numbers."""

import random

import pytest

from sources.podresources.errors import Result
from sources.podresources.request_pace import PreparationPolls, RequestSchedule

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


def test_polls_of_unprepared_claims_become_rarer() -> None:
    polls = PreparationPolls(10 * S)
    assert polls.next_ns is None
    polls.record_list((("ml", "a"),), 0)
    times: list[int] = []
    for _ in range(8):
        assert polls.next_ns is not None
        times.append(polls.next_ns)
        polls.record_unprepared(polls.next_ns)
    gaps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert [gap / S for gap in gaps] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    # Another list with the same pod does not shorten the delay; another pod does.
    polls.record_list((("ml", "a"),), 100 * S)
    assert polls.next_ns == 110 * S
    polls.record_list((("ml", "a"), ("ml", "b")), 100 * S)
    assert polls.next_ns == 100 * S + 250 * MS
    polls.record_list((), 101 * S)
    assert polls.next_ns is None


def pods(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple(("ml", name) for name in names)


def test_pods_are_polled_in_turn() -> None:
    polls = PreparationPolls(10 * S)
    assert polls.next_pods(2) == ()
    polls.record_list(pods(*"abcde"), 0)
    assert [polls.next_pods(2) for _ in range(3)] == [pods(*"ab"), pods(*"cd"), pods(*"ea")]
    # However the pods change, the next poll continues after the last polled pod.
    polls.record_list(pods(*"bdf"), S)
    assert [polls.next_pods(2) for _ in range(2)] == [pods(*"bd"), pods(*"fb")]
    polls.record_list(pods("z"), S)
    assert [polls.next_pods(2) for _ in range(2)] == [pods("z"), pods("z")]


@pytest.mark.parametrize("count", range(1, 12))
def test_each_pod_is_polled_once_per_round(count: int) -> None:
    polls = PreparationPolls(10 * S)
    polls.record_list(pods(*[f"{n:02}" for n in range(count)]), 0)
    rounds = -(-count // 4)
    for _ in range(5):
        assert {pod for _ in range(rounds) for pod in polls.next_pods(4)} == set(polls.pods)
