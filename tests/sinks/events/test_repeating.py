"""Repeated errors are added to one Event, and many errors result in few requests."""

from typing import Any

import pytest

from sinks.events import event_queue
from tests.sinks.events.support import ERRORS, GPU, Bench, sleep, victim

pytestmark = pytest.mark.looptime


async def test_a_repeated_error_is_added_to_the_same_event() -> None:
    async with Bench().running() as bench:
        bench.add_error()
        await sleep(60)
        for _ in range(3):
            bench.add_error()
            await sleep(30)
        assert bench.requests() == [(6, "POST")]
        assert bench.event()["count"] == 1
        await sleep(600)
        assert bench.requests() == [(6, "POST"), (606, "PATCH")]
    event = bench.event()
    assert event["count"] == 4
    assert event["firstTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["lastTimestamp"] == "2027-01-15T08:02:00Z"


async def test_a_repetition_after_a_long_time_is_added_without_delay() -> None:
    async with Bench().running() as bench:
        bench.add_error()
        await sleep(2000)
        bench.add_error()
        await sleep(7)
        assert bench.requests() == [(6, "POST"), (2006, "PATCH")]
    assert bench.event()["count"] == 2


async def test_an_event_that_the_server_has_expired_is_created_again() -> None:
    async with Bench().running() as bench:
        bench.add_error()
        await sleep(2000)
        bench.api.objects.clear()
        for _ in range(3):
            bench.add_error()
        await sleep(7)
    assert bench.event()["count"] == 3
    assert bench.event()["firstTimestamp"] == "2027-01-15T08:33:20Z"
    assert [method for _, method in bench.requests()] == ["POST", "PATCH", "POST"]


async def test_another_pod_device_or_code_has_its_own_event() -> None:
    async with Bench().running() as bench:
        bench.add_error()
        bench.add_error(code=79)
        bench.add_error(victim("b", GPU, uid="uid-b"))
        bench.add_error(victim("a", GPU, uid="uid-a-again"))
        bench.add_error(victim("a", "GPU-other", uid="uid-a"))
        await sleep(7)
    assert [event["count"] for event in bench.events()] == [1] * 5
    assert len({event["metadata"]["name"] for event in bench.events()}) == 5


async def test_errors_of_many_pods_are_written_at_the_rate_limit() -> None:
    async with Bench(per_minute=5).running() as bench:
        bench.add_error(*(victim(f"p{n}", GPU, uid=f"uid-{n}") for n in range(12)))
        await sleep(7)
        assert len(bench.events()) == 5
        await sleep(60)
        assert len(bench.events()) == 10
        await sleep(60)
        assert len(bench.events()) == 12
        times = [at for at, _ in bench.requests()]
    assert all(later - earlier >= 60 for earlier, later in zip(times, times[5:], strict=False))


@pytest.mark.slow
async def test_thousands_of_errors_are_counted_in_one_event() -> None:
    async with Bench(repeat="1m").running() as bench:
        for _ in range(100):
            for _ in range(30):
                bench.add_error()
            await sleep(1)
        await sleep(120)
    assert bench.event()["count"] == 3000
    assert 3 <= len(bench.requests()) <= 4


async def test_the_queue_is_bounded_and_errors_without_room_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_queue, "MAX_ENTRIES", 4)
    async with Bench(per_minute=1).running() as bench:
        for pod in "abcdefg":
            bench.add_error(victim(pod, GPU, uid=f"uid-{pod}"))
        await sleep(7)
        assert bench.lost("crowded") == 3
        await sleep(600)
        assert len(bench.events()) == 4
        bench.add_error(victim("h", GPU, uid="uid-h"))
        await sleep(61)
        assert bench.lost("crowded") == 3, "a written entry makes room"
    assert len(bench.events()) == 5


async def test_errors_that_left_the_snapshot_unseen_are_counted() -> None:
    async with Bench().running() as bench:
        bench.add_error()
        await sleep(7)
        for _ in range(5):
            bench.add_error(code=48)
        bench.errors = bench.errors[4:]
        bench.show()
        await sleep(7)
        assert bench.lost("missed") == 3
    assert [event["count"] for event in bench.events()] == [1, 2]


@pytest.mark.slow
async def test_many_errors_are_read_before_they_leave_the_snapshot() -> None:
    async with Bench().running() as bench:
        for _ in range(1000):
            bench.add_error()
            bench.errors = bench.errors[-256:]
            await sleep(0.01)
        await sleep(1000)
        assert bench.lost("missed") == 0
    assert bench.event()["count"] == 1000


async def test_a_sink_that_starts_late_reports_all_errors_in_the_snapshot() -> None:
    bench = Bench()
    for _ in range(9):
        bench.add_error()
    bench.errors = bench.errors[5:]
    bench.show()
    async with bench.running():
        await sleep(7)
        assert bench.lost("missed") == 0
    assert bench.event()["count"] == 4


async def test_errors_during_a_request_are_added_by_the_next_one() -> None:
    async with Bench(wait="0s", repeat="1m").running() as bench:
        bench.api.delays["a"] = 3
        bench.add_error()
        for _ in range(2):
            await sleep(1)
            bench.add_error()
        await sleep(3)
        assert bench.event()["count"] == 1
        assert bench.event()["lastTimestamp"] == "2027-01-15T08:00:00Z"
        await sleep(100)
    assert bench.event()["count"] == 3
    assert bench.event()["lastTimestamp"] == "2027-01-15T08:00:02Z"


# -- reloads


async def test_a_reload_neither_repeats_nor_loses_errors() -> None:
    bench = Bench()
    async with bench.running():
        bench.add_error()
        await sleep(7)
        bench.add_error()
        bench.add_error(code=79)
        await sleep(1)
    async with bench.running(bench.new_sink(repeat="1m")):
        await sleep(120)
    counts = {event["message"][:6]: event["count"] for event in bench.events()}
    assert counts == {"XID 31": 2, "XID 79": 1}
    assert [method for _, method in bench.requests()] == ["POST", "POST", "PATCH"]


NARROWER = {
    "codes": ({"codes": (79,)}, ["kube-system 79", "ml 79"]),
    "namespaces": ({"namespaces": ("ml",)}, ["ml 31", "ml 79"]),
    "both": ({"codes": (79,), "namespaces": ("ml",)}, ["ml 79"]),
}


@pytest.mark.parametrize(("options", "expected"), NARROWER.values(), ids=NARROWER)
async def test_waiting_errors_follow_the_options_of_a_reload(
    options: dict[str, Any], expected: list[str]
) -> None:
    bench = Bench(per_minute=1)
    async with bench.running():
        bench.add_error(code=48)
        for code in (31, 79):
            for namespace in ("ml", "kube-system"):
                bench.add_error(victim("a", GPU, uid="uid-a", namespace=namespace), code=code)
        await sleep(10)
        [first] = bench.api.objects
    async with bench.running(bench.new_sink(**options)):
        await sleep(100)
        assert sum(bench.ctx.counted(ERRORS).values()) == 0
    del bench.api.objects[first]
    found = [f"{e['metadata']['namespace']} {e['message'][4:6]}" for e in bench.events()]
    assert sorted(found) == expected


async def test_an_event_continues_when_its_code_is_configured_again() -> None:
    bench = Bench()
    async with bench.running():
        bench.add_error()
        await sleep(7)
        bench.add_error()
        await sleep(7)
    async with bench.running(bench.new_sink(codes=(79,))):
        await sleep(100)
    async with bench.running(bench.new_sink()):
        bench.add_error()
        await sleep(700)
    assert bench.event()["count"] == 2
    assert [method for _, method in bench.requests()] == ["POST", "PATCH"]
