"""Errors that come again are added up, and storms write little."""

from typing import Any

import pytest

from sinks.events import work_queue
from tests.sinks.events.support import ERRORS, GPU, Bench, passes, victim

pytestmark = pytest.mark.looptime


async def test_the_same_again_is_added_to_the_same_event() -> None:
    async with Bench().running() as bench:
        bench.strikes()
        await passes(60)
        for _ in range(3):
            bench.strikes()
            await passes(30)
        assert bench.asked() == [(6, "POST")]
        assert bench.event()["count"] == 1
        await passes(600)
        assert bench.asked() == [(6, "POST"), (606, "PATCH")]
    event = bench.event()
    assert event["count"] == 4
    assert event["firstTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["lastTimestamp"] == "2027-01-15T08:02:00Z"


async def test_after_a_long_time_it_is_added_at_once() -> None:
    async with Bench().running() as bench:
        bench.strikes()
        await passes(2000)
        bench.strikes()
        await passes(7)
        assert bench.asked() == [(6, "POST"), (2006, "PATCH")]
    assert bench.event()["count"] == 2


async def test_an_event_that_the_server_has_release_is_made_again() -> None:
    async with Bench().running() as bench:
        bench.strikes()
        await passes(2000)
        bench.api.objects.clear()
        for _ in range(3):
            bench.strikes()
        await passes(7)
    assert bench.event()["count"] == 3
    assert bench.event()["firstTimestamp"] == "2027-01-15T08:33:20Z"
    assert [method for _, method in bench.asked()] == ["POST", "PATCH", "POST"]


async def test_another_pod_device_or_code_has_its_own() -> None:
    async with Bench().running() as bench:
        bench.strikes()
        bench.strikes(code=79)
        bench.strikes(victim("b", GPU, uid="uid-b"))
        bench.strikes(victim("a", GPU, uid="uid-a-again"))
        bench.strikes(victim("a", "GPU-other", uid="uid-a"))
        await passes(7)
    assert [event["count"] for event in bench.events()] == [1] * 5
    assert len({event["metadata"]["name"] for event in bench.events()}) == 5


async def test_a_storm_over_many_pods_is_written_bit_by_bit() -> None:
    async with Bench(per_minute=5).running() as bench:
        bench.strikes(*(victim(f"p{n}", GPU, uid=f"uid-{n}") for n in range(12)))
        await passes(7)
        assert len(bench.events()) == 5
        await passes(60)
        assert len(bench.events()) == 10
        await passes(60)
        assert len(bench.events()) == 12
        times = [at for at, _ in bench.asked()]
    assert all(later - earlier >= 60 for earlier, later in zip(times, times[5:], strict=False))


async def test_thousands_of_errors_are_one_event_and_all_are_in_it() -> None:
    async with Bench(repeat="1m").running() as bench:
        for _ in range(100):
            for _ in range(30):
                bench.strikes()
            await passes(1)
        await passes(120)
    assert bench.event()["count"] == 3000
    assert 3 <= len(bench.asked()) <= 4


async def test_what_waits_is_bounded_and_what_has_no_room_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_queue, "MAX_ENTRIES", 4)
    async with Bench(per_minute=1).running() as bench:
        for pod in "abcdefg":
            bench.strikes(victim(pod, GPU, uid=f"uid-{pod}"))
        await passes(7)
        assert bench.lost("crowded") == 3
        await passes(600)
        assert len(bench.events()) == 4
        bench.strikes(victim("h", GPU, uid="uid-h"))
        await passes(61)
        assert bench.lost("crowded") == 3, "there is room where all is told"
    assert len(bench.events()) == 5


async def test_errors_that_are_shown_no_more_are_counted() -> None:
    async with Bench().running() as bench:
        bench.strikes()
        await passes(7)
        for _ in range(5):
            bench.strikes(code=48)
        bench.errors = bench.errors[4:]
        bench.show()
        await passes(7)
        assert bench.lost("missed") == 3
    assert [event["count"] for event in bench.events()] == [1, 2]


async def test_in_a_storm_those_that_would_pass_by_are_not_waited_for() -> None:
    async with Bench().running() as bench:
        for _ in range(1000):
            bench.strikes()
            bench.errors = bench.errors[-256:]
            await passes(0.01)
        await passes(1000)
        assert bench.lost("missed") == 0
    assert bench.event()["count"] == 1000


async def test_a_sink_that_comes_late_misses_nothing_that_it_could_have_reported() -> None:
    bench = Bench()
    for _ in range(9):
        bench.strikes()
    bench.errors = bench.errors[5:]
    bench.show()
    async with bench.running():
        await passes(7)
        assert bench.lost("missed") == 0
    assert bench.event()["count"] == 4


async def test_what_happens_while_an_event_is_written_is_reported_next() -> None:
    async with Bench(wait="0s", repeat="1m").running() as bench:
        bench.api.takes["a"] = 3
        bench.strikes()
        for _ in range(2):
            await passes(1)
            bench.strikes()
        await passes(3)
        assert bench.event()["count"] == 1
        assert bench.event()["lastTimestamp"] == "2027-01-15T08:00:00Z"
        await passes(100)
    assert bench.event()["count"] == 3
    assert bench.event()["lastTimestamp"] == "2027-01-15T08:00:02Z"


# -- over reloads


async def test_a_reload_reports_nothing_twice_and_leaves_out_nothing() -> None:
    bench = Bench()
    async with bench.running():
        bench.strikes()
        await passes(7)
        bench.strikes()
        bench.strikes(code=79)
        await passes(1)
    async with bench.running(bench.made(repeat="1m")):
        await passes(120)
    counts = {event["message"][:6]: event["count"] for event in bench.events()}
    assert counts == {"XID 31": 2, "XID 79": 1}
    assert [method for _, method in bench.asked()] == ["POST", "POST", "PATCH"]


NARROWER = {
    "codes": ({"codes": (79,)}, ["kube-system 79", "ml 79"]),
    "namespaces": ({"namespaces": ("ml",)}, ["ml 31", "ml 79"]),
    "both": ({"codes": (79,), "namespaces": ("ml",)}, ["ml 79"]),
}


@pytest.mark.parametrize(("options", "given_out"), NARROWER.values(), ids=NARROWER)
async def test_what_waits_is_reported_as_the_options_of_a_reload_have_it(
    options: dict[str, Any], given_out: list[str]
) -> None:
    bench = Bench(per_minute=1)
    async with bench.running():
        bench.strikes(code=48)
        for code in (31, 79):
            for namespace in ("ml", "kube-system"):
                bench.strikes(victim("a", GPU, uid="uid-a", namespace=namespace), code=code)
        await passes(10)
        [first] = bench.api.objects
    async with bench.running(bench.made(**options)):
        await passes(100)
        assert sum(bench.ctx.counted(ERRORS).values()) == 0
    del bench.api.objects[first]
    found = [f"{e['metadata']['namespace']} {e['message'][4:6]}" for e in bench.events()]
    assert sorted(found) == given_out


async def test_an_event_is_added_to_where_its_code_is_wanted_again() -> None:
    bench = Bench()
    async with bench.running():
        bench.strikes()
        await passes(7)
        bench.strikes()
        await passes(7)
    async with bench.running(bench.made(codes=(79,))):
        await passes(100)
    async with bench.running(bench.made()):
        bench.strikes()
        await passes(700)
    assert bench.event()["count"] == 2
    assert [method for _, method in bench.asked()] == ["POST", "PATCH"]
