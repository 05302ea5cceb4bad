"""Which containers held a device at which time, and with which share."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.usage.holder_timeline import (
    MAX_CHANGES,
    WHOLE,
    Holders,
    HolderTimeline,
    by_container,
    weights,
)
from pipeline.usage.interval_split import split_held_time
from tests.pipeline.usage.samples import S, holder, name
from tests.support.nodes import at

T = at(0).mono_ns


def parts(*shares: float | None) -> list[float]:
    found = weights(shares)
    return [round(weight / sum(found), 9) for weight in found]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((), [1]),
        ((1.0,), [1, 0]),
        ((None,), [1, 0]),
        ((0.25,), [0.25, 0.75]),
        ((0.25, 0.5), [0.25, 0.5, 0.25]),
        ((None, None), [0.5, 0.5, 0]),
        ((0.5, None), [0.5, 0.5, 0]),
        ((0.5, None, None), [0.5, 0.25, 0.25, 0]),
        # Nothing is left: as much as the smallest known share, and all are scaled down.
        ((0.75, 0.25, None), [0.6, 0.2, 0.2, 0]),
        ((1.0, None), [0.5, 0.5, 0]),
        ((1.0, None, None), [0.333333333, 0.333333333, 0.333333333, 0]),
        # More than the whole device.
        ((1.0, 0.5, 0.5), [0.5, 0.25, 0.25, 0]),
        # Three thirds are the whole device, though a float is less than a third.
        ((1 / 3, 1 / 3, 1 / 3), [0.333333333, 0.333333333, 0.333333333, 0]),
        ((1 / 3, 1 / 3, 1 / 3, None), [0.25, 0.25, 0.25, 0.25, 0]),
        # Numbers that can't be shares count as unknown.
        ((float("nan"), 0.5), [0.5, 0.5, 0]),
        ((0.0, -1.0, 2.0), [0.333333333, 0.333333333, 0.333333333, 0]),
    ],
)
def test_the_part_of_each_holder_and_at_the_end_the_part_without_holder(
    shares: Sequence[float | None], expected: list[float]
) -> None:
    assert parts(*shares) == expected


@given(st.lists(st.none() | st.floats(0.001, 1), max_size=6))
def test_a_known_share_is_that_part_of_the_device_while_all_fit(shares: list[float | None]) -> None:
    found = weights(shares)
    known = [share for share in shares if share is not None]
    assert all(weight >= 0 for weight in found)
    assert sum(found) >= WHOLE - len(shares)
    if sum(known) < 1 - 1e-9:
        for share, weight in zip(shares, found, strict=False):
            if share is not None:
                assert weight / sum(found) == pytest.approx(share, abs=1e-9)
    if None in shares:
        assert found[-1] == 0


def held(*pods: str) -> Holders:
    return by_container([holder(pod) for pod in pods])


def timeline(*cuts: tuple[float, Sequence[str]]) -> HolderTimeline:
    line = HolderTimeline()
    for when, pods in cuts:
        line.record(held(*pods), at(when))
    return line


def pieces_of(line: HolderTimeline, start: float, end: float) -> list[tuple[int, list[str]]]:
    return [
        (piece.time_ns, [one[1] for one in piece.change.held] if piece.change else ["?"])
        for piece in line.spans(at(start).mono_ns, at(end).mono_ns)
    ]


def test_holders_are_sorted_and_named_without_the_container_id() -> None:
    first = holder("a", container_id="2")
    found = by_container([holder("b"), first, holder("a", container_id="1")])
    assert list(found) == [name("a"), name("b")]
    assert found[name("a")] is first


def test_an_interval_is_split_where_holders_change() -> None:
    line = timeline((0, ""), (2, "a"), (3, "ab"), (3, "b"), (5, ""), (9, "c"))
    assert pieces_of(line, 1, 6) == [(S, []), (S, ["a"]), (2 * S, ["b"]), (S, [])]
    assert pieces_of(line, 2, 3) == [(S, ["a"])]
    assert pieces_of(line, 5, 5) == []
    assert pieces_of(line, 20, 21) == [(S, ["c"])]


def test_time_before_the_first_known_change_is_unattributed() -> None:
    assert pieces_of(timeline((2, "a")), 0, 3) == [(2 * S, ["?"]), (S, ["a"])]
    assert split_held_time(timeline((2, "a")).spans(T, T + 3 * S)) == ({name("a"): S}, 2 * S, 2 * S)
    assert pieces_of(HolderTimeline(), 0, 3) == [(3 * S, ["?"])]


def test_a_change_that_arrives_late_is_placed_at_the_last_known_change() -> None:
    line = timeline((2, "a"), (5, "b"), (3, "c"))
    assert pieces_of(line, 0, 9) == [(2 * S, ["?"]), (3 * S, ["a"]), (4 * S, ["c"])]


def test_the_same_holders_again_are_not_a_change() -> None:
    line = timeline((2, "a"), (3, "a"), (4, "a"))
    assert pieces_of(line, 2, 9) == [(7 * S, ["a"])]


def test_forgetting_removes_past_changes_and_keeps_current_holders() -> None:
    line = timeline((0, "a"), (2, "b"), (4, "c"))
    line.forget(at(3).mono_ns)
    assert pieces_of(line, 3, 5) == [(S, ["b"]), (S, ["c"])]
    assert pieces_of(line, 1, 5) == [(S, ["?"]), (2 * S, ["b"]), (S, ["c"])]


def test_the_number_of_kept_changes_is_limited() -> None:
    line = timeline(*[(n, "ab"[n % 2]) for n in range(3 * MAX_CHANGES)])
    pieces = line.spans(T, at(3 * MAX_CHANGES).mono_ns)
    assert len(pieces) == MAX_CHANGES + 1
    assert pieces[0].change is None
    assert sum(piece.time_ns for piece in pieces) == 3 * MAX_CHANGES * S


@pytest.mark.parametrize(("when", "pods"), [(1, ""), (2, "a"), (2.5, "a"), (3, "b"), (99, "b")])
def test_the_holders_at_a_moment(when: float, pods: str) -> None:
    line = timeline((2, "a"), (3, "b"))
    assert [one[1] for one in line.at(at(when).mono_ns)] == list(pods)


def test_the_moment_at_which_a_container_released_the_device() -> None:
    line = HolderTimeline()
    for when, pods in ((1, "a"), (2, "ab"), (3, "b"), (4, "")):
        line.record(held(*pods), at(when))
    assert line.released(name("a")) == at(3)
    assert line.released(name("b")) == at(4)
    assert line.released(name("c")) is None
    line.record(held("b"), at(5))
    assert line.released(name("b")) is None
