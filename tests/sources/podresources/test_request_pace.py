"""When the kubelet is asked; no clock but numbers."""

import random

import pytest

from sources.podresources.errors import Result
from sources.podresources.request_pace import PreparationPolls, RequestSchedule

MS = 1_000_000
S = 1000 * MS


@pytest.fixture
def pace() -> RequestSchedule:
    return RequestSchedule(10 * S, random.Random(1))


def ask(pace: RequestSchedule, now: int) -> bool:
    whole = pace.record_request(now)
    pace.record_response()
    return whole


def test_first_at_once_and_then_each_interval(pace: RequestSchedule) -> None:
    assert pace.next_ns == 0
    assert ask(pace, 0) is True
    assert pace.next_ns == 10 * S
    assert ask(pace, 12 * S) is True
    assert pace.next_ns == 22 * S


def test_a_hint_asks_in_between_and_moves_no_interval(pace: RequestSchedule) -> None:
    ask(pace, 0)
    pace.request_soon()
    assert pace.next_ns <= 3 * S
    assert ask(pace, 3 * S) is False
    assert pace.next_ns == 10 * S


def test_hints_are_spaced(pace: RequestSchedule) -> None:
    ask(pace, 0)
    pace.request_soon()
    assert pace.next_ns == 100 * MS


def test_a_hint_while_it_asks_makes_one_more(pace: RequestSchedule) -> None:
    pace.record_request(0)
    pace.request_soon()
    pace.record_response()
    assert pace.next_ns == 100 * MS
    ask(pace, 100 * MS)
    assert pace.next_ns == 10 * S


@pytest.mark.parametrize(
    ("result", "delays", "given_out"),
    [
        ("unreachable", [0.25, 0.5, 1, 2, 4, 8, 10, 10], [False] + [True] * 7),
        ("rejected", [1, 2, 4, 8, 16, 32, 60, 60], [False] + [True] * 7),
        ("timeout", [10] * 3, [True] * 3),
        ("too_large", [10] * 3, [True] * 3),
        ("failed", [10] * 3, [True] * 3),
        ("unimplemented", [10] * 3, [True] * 3),
    ],
)
def test_after_a_failure(
    pace: RequestSchedule, result: Result, delays: list[float], given_out: list[bool]
) -> None:
    now = 0
    said = []
    for delay in delays:
        pace.record_request(now)
        said.append(pace.record_failure(now, result))
        pace.request_soon()  # hints don't shorten it
        waited = (pace.next_ns - now) / S
        assert delay <= waited <= delay * 1.25
        now = pace.next_ns
    assert said == given_out
    assert ask(pace, now) is True
    pace.record_request(now + 10 * S)
    assert pace.record_failure(now + 10 * S, "unreachable") is False


def test_an_answer_that_can_not_be_trusted_yet_is_asked_for_again(pace: RequestSchedule) -> None:
    pace.record_request(0)
    pace.retry_soon(0)
    pace.request_soon()
    assert pace.next_ns == S // 2
    assert ask(pace, S // 2) is True
    assert pace.next_ns == S // 2 + 10 * S


def test_another_socket_is_asked_at_once(pace: RequestSchedule) -> None:
    ask(pace, 0)
    pace.record_request(10 * S)
    pace.record_failure(10 * S, "rejected")
    pace.reset()
    assert pace.next_ns == 10 * S + 100 * MS
    assert ask(pace, 11 * S) is True


def test_peeks_are_ever_rarer() -> None:
    peeks = PreparationPolls(10 * S)
    assert peeks.next_ns is None
    peeks.record_list((("ml", "a"),), 0)
    times: list[int] = []
    for _ in range(8):
        assert peeks.next_ns is not None
        times.append(peeks.next_ns)
        peeks.record_unprepared(peeks.next_ns)
    gaps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert [gap / S for gap in gaps] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    # Listed again it is no reason to look more often; another pod is.
    peeks.record_list((("ml", "a"),), 100 * S)
    assert peeks.next_ns == 110 * S
    peeks.record_list((("ml", "a"), ("ml", "b")), 100 * S)
    assert peeks.next_ns == 100 * S + 250 * MS
    peeks.record_list((), 101 * S)
    assert peeks.next_ns is None


def pods(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple(("ml", name) for name in names)


def test_peeks_take_their_turns() -> None:
    peeks = PreparationPolls(10 * S)
    assert peeks.next_pods(2) == ()
    peeks.record_list(pods(*"abcde"), 0)
    assert [peeks.next_pods(2) for _ in range(3)] == [pods(*"ab"), pods(*"cd"), pods(*"ea")]
    # However the others change, it goes on behind the last one.
    peeks.record_list(pods(*"bdf"), S)
    assert [peeks.next_pods(2) for _ in range(2)] == [pods(*"bd"), pods(*"fb")]
    peeks.record_list(pods("z"), S)
    assert [peeks.next_pods(2) for _ in range(2)] == [pods("z"), pods("z")]


@pytest.mark.parametrize("count", range(1, 12))
def test_no_one_waits_for_more_than_a_round_of_peeks(count: int) -> None:
    peeks = PreparationPolls(10 * S)
    peeks.record_list(pods(*[f"{n:02}" for n in range(count)]), 0)
    rounds = -(-count // 4)
    for _ in range(5):
        assert {pod for _ in range(rounds) for pod in peeks.next_pods(4)} == set(peeks.pods)
