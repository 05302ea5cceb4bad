"""How busy a container kept a device: over the last minute, not the last second."""

from dataclasses import replace
from functools import cache

import pytest

from pipeline.model import NS, DeviceUsage, Snapshot, Usage
from pipeline.status_page import last_minute
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.last_minute import POINTS, BusyPart, LastMinute, busy_part
from pipeline.status_page.recent_past import RecentPast
from tests.pipeline.status_page.scenes import report_claims, started_node, status_input
from tests.pipeline.status_page.test_container_use import account
from tests.support.nodes import at, gpu, kubelet_claim, uuid_of
from tests.support.usage import used

GPU = uuid_of(0)


def device(
    seconds: float,
    busy: float | None,
    recent: int | None = 0,
    pod: str = "a",
    shared: tuple[float, float] | None = None,
) -> Usage:
    """Return the account of a GPU with one container.

    Args:
        seconds: time with usage samples.
        busy: busy seconds of the container.
        recent: the busy part of the last second, in millionths.
        pod: name of the container's pod.
        shared: contested seconds and seconds for switching; None if unknown.
    """
    busy_ns = None if busy is None else round(busy * NS)
    contested, switching = (None,) * 2 if shared is None else (round(s * NS) for s in shared)
    one = used(pod, uid="", busy=busy_ns, recent=recent, contested=contested, switching=switching)
    known = account(one).devices[GPU]
    return Usage({GPU: replace(known, elapsed_ns=round(seconds * NS))})


@cache
def held() -> Snapshot:
    node = started_node()
    node.has(gpu(0))
    report_claims(node, kubelet_claim("a", GPU))
    return node.snapshot()


def snapshot(seconds: float, usage: Usage | None) -> Snapshot:
    return replace(held(), at=at(seconds), usage=usage)


def percent(*usages: tuple[float, Usage | None]) -> float | None:
    """Return the busy percentage after these accounts, each with the time of its snapshot."""
    found = part(*usages)
    return None if found is None else found.percent


def part(*usages: tuple[float, Usage | None]) -> BusyPart | None:
    """Return the busy part and its error after these accounts."""
    minute = LastMinute()
    for seconds, usage in usages:
        minute.add(snapshot(seconds, usage))
    last = usages[-1][1]
    assert last is not None
    found: DeviceUsage = last.devices[GPU]
    return busy_part(found, found.containers[0], minute.oldest())


def test_a_part_is_the_mean_over_a_minute() -> None:
    """In each second the driver reports one process only, so that a second shows 0 or 100 %."""
    usages = [
        (second, device(second, busy=second // 3, recent=0 if second % 3 else 1_000_000))
        for second in range(300)
    ]
    assert percent(*usages) == pytest.approx(100 / 3, abs=1)


def test_what_was_before_the_last_minute_does_not_count() -> None:
    busy = [(second, device(second, busy=min(second, 100))) for second in range(0, 171, 5)]
    assert percent(*busy) == 0
    assert percent(*busy[:-4]) == pytest.approx(100 * (100 - 90) / 60, abs=1)


def test_a_new_container_has_the_part_of_the_last_second() -> None:
    assert percent((10, device(10, busy=1, recent=250_000))) == 25


@pytest.mark.parametrize(
    ("before", "now", "error"),
    [
        ((0, 0), (5, 1.5), 5.8),  # two standard errors are 2 s of a minute, and 1.5 s for switching
        ((95, 4.5), (100, 6), 5.8),  # only of the last minute
        ((7, 3), (7, 3), 0),  # it was alone in the last minute
        (None, (5, 1.5), None),
        ((0, 0), None, None),
    ],
)
def test_the_error_is_that_of_the_same_time(
    before: tuple[float, float] | None, now: tuple[float, float] | None, error: float | None
) -> None:
    first, last = device(0, 0, shared=before), device(60, 30, shared=now)
    assert part((0, first), (59, last)) == BusyPart(50, error)


@pytest.mark.parametrize(("shared", "error"), [((0, 0), 0), ((0.1, 0), None), (None, None)])
def test_the_error_of_a_single_second_is_unknown_unless_the_container_was_always_alone(
    shared: tuple[float, float] | None, error: float | None
) -> None:
    now = device(10, busy=1, recent=250_000, shared=shared)
    assert part((10, now)) == BusyPart(25, error)


def test_a_time_without_usage_samples_does_not_count() -> None:
    """Twenty seconds of samples, in which the container was busy for ten, in a minute."""
    assert percent((0, device(0, busy=0)), (60, device(20, busy=10))) == 50


@pytest.mark.parametrize(
    "last", [device(60, busy=None, recent=None), device(60, busy=30, recent=None)]
)
def test_what_is_unknown_now_is_unknown(last: Usage) -> None:
    assert percent((0, device(0, busy=0)), (59, last)) is None


@pytest.mark.parametrize("again", [device(30, busy=2, recent=70_000), device(5, busy=12)])
def test_an_account_that_begins_again_has_no_old_points(again: Usage) -> None:
    found = percent((0, device(0, busy=0)), (20, device(20, busy=10)), (40, again))
    assert found == again.devices[GPU].containers[0].recent_busy_ppm / 1e4  # type: ignore[operator]


def test_the_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    minute = LastMinute()
    for second in range(200):
        minute.add(snapshot(second, device(second, busy=0)))
    assert [len(points) for points in minute._points.values()] == [POINTS]
    monkeypatch.setattr(last_minute, "MOST_CONTAINERS", 1)
    two = account(used("a", uid="", busy=0), used("b", uid="", busy=0))
    minute.add(snapshot(2000, two))
    assert [key[1].pod for key in minute.oldest()] == ["a"]
    minute.add(snapshot(3000, None))
    assert minute.oldest() == {}


def test_the_document_has_the_mean() -> None:
    past = RecentPast()
    known = [
        snapshot(second, device(second, busy=second / 4, shared=(second / 12, 0)))
        for second in range(0, 61, 5)
    ]
    for each in known:
        past.add(each)
    node = started_node()
    node.has(gpu(0))
    report_claims(node, kubelet_claim("a", GPU))
    shown = status_input(node, now=at(60), snapshot=known[-1], past=past.known())
    [card] = status_of(shown).gpus or ()
    [holder] = card.holders or ()
    assert holder.use is not None
    assert (holder.use.busy_percent, holder.use.busy_error_percent) == (25, 3.3)
