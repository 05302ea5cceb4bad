"""What the API server may answer, and what becomes of the errors then."""

import logging

import pytest

from pipeline.base.errors import ApiError
from tests.sinks.events.support import ERRORS, Bench, passes, refused, victim

pytestmark = pytest.mark.looptime

FOR_ALL = {
    "no right": refused(403, "events is forbidden: User may not create events"),
    "no such credentials": refused(401),
    "too many requests": refused(429),
    "a fault of the server's": refused(500),
    "no answer": ApiError("can't be reached"),
}


@pytest.mark.parametrize("error", FOR_ALL.values(), ids=FOR_ALL)
async def test_what_keeps_all_events_from_being_written_is_waited_out(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    async with Bench().running() as bench:
        bench.api.answers.extend([error] * 3)
        bench.strikes()
        await passes(6.5)
        assert bench.ctx.up == 0
        bench.strikes()
        await passes(60)
        assert bench.ctx.up == 1
        await passes(600)
        assert bench.lost("denied") == bench.lost("invalid") == bench.lost("namespace") == 0
    assert sum(event["count"] for event in bench.events()) == 2
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1, "once is enough"


async def test_a_right_that_is_missing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench().running() as bench:
        bench.api.answers.append(FOR_ALL["no right"])
        bench.strikes()
        await passes(20)
    assert 'apiGroups [""], resources ["events"], verbs [create, patch]' in caplog.text


async def test_without_credentials_it_says_so_and_continues_once_there_are_some() -> None:
    bench = Bench()
    bench.ctx.api = None
    async with bench.running():
        bench.strikes()
        await passes(30)
        assert bench.ctx.up == 0
        bench.ctx.api = bench.api
        await passes(60)
        assert bench.ctx.up == 1
    assert bench.event()["count"] == 1


async def test_a_server_that_asks_to_wait_is_not_asked_before() -> None:
    async with Bench().running() as bench:
        busy = ApiError("busy", status=429, reason="TooManyRequests", retry_after=100)
        bench.api.answers.append(busy)
        bench.strikes()
        await passes(300)
        first, second = (at for at, _ in bench.asked())
    assert second - first >= 100


DENIAL = 'admission webhook "validation.example.com" denied the request: no'
FOR_ONE = {
    "a webhook denies it": (refused(403, DENIAL, "Forbidden"), "denied"),
    "the server doesn't take it": (refused(422, "is invalid", "Invalid"), "invalid"),
    "it can't be read": (refused(400, "bad", "BadRequest"), "invalid"),
    "the namespace is gone": (refused(404, 'namespaces "ml" not found', "NotFound"), "namespace"),
    "the namespace is going": (
        refused(
            403,
            "unable to create new content in namespace ml because it is being terminated",
            "Forbidden",
        ),
        "namespace",
    ),
}


@pytest.mark.parametrize(("error", "reason"), FOR_ONE.values(), ids=FOR_ONE)
async def test_what_is_refused_for_one_pod_keeps_no_other_waiting(
    error: ApiError, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Bench().running() as bench:
        bench.api.answers.append(error)
        bench.strikes(victim("a", "GPU-1", uid="uid-a"), victim("b", "GPU-1", uid="uid-b"))
        await passes(7)
        assert bench.ctx.up == 1
        assert bench.lost(reason) == 1
        assert bench.event()["involvedObject"]["name"] == "b"
    assert "no Event on pod ml/a" in caplog.text


async def test_what_fails_for_one_pod_alone_keeps_no_other_waiting() -> None:
    """The server can't call a webhook that looks at one namespace: to podgpu that's its fault."""
    async with Bench().running() as bench:
        dead = "Internal error occurred: failed calling webhook"
        bench.api.faults["a"] = refused(500, dead, "InternalError")
        pods = [victim(pod, "GPU-1", uid=f"uid-{pod}") for pod in "abcd"]
        bench.strikes(*pods)
        await passes(600)
        given_out = {event["involvedObject"]["name"] for event in bench.events()}
        assert given_out == {"b", "c", "d"}
        bench.api.faults.clear()
        await passes(120)
    assert {event["involvedObject"]["name"] for event in bench.events()} == {"a", "b", "c", "d"}
    assert sum(bench.ctx.counted(ERRORS).values()) == 0


async def test_a_webhook_that_hangs_for_one_pod_keeps_no_other_waiting() -> None:
    """A webhook has ten seconds by default: longer than a new attempt may take."""
    async with Bench().running() as bench:
        bench.api.takes["a"] = 10
        bench.api.faults["a"] = refused(500, "failed calling webhook", "InternalError")
        b = victim("b", "GPU-1", uid="uid-b")
        bench.strikes(victim("a", "GPU-1", uid="uid-a"), b)
        await passes(300)
        bench.strikes(b)
        await passes(600)
        assert bench.event()["involvedObject"]["name"] == "b"
        assert bench.event()["count"] == 2
        bench.api.takes.clear()
        bench.api.faults.clear()
        await passes(120)
        assert bench.ctx.up == 1
    assert [event["count"] for event in bench.events()] == [2, 1]


async def test_what_can_t_be_written_for_an_hour_is_given_up_and_counted() -> None:
    async with Bench().running() as bench:
        bench.api.faults["a"] = refused(500, "failed calling webhook", "InternalError")
        bench.strikes()
        bench.strikes()
        await passes(3590)
        assert bench.ctx.up == 0
        assert bench.lost("late") == 0
        await passes(100)
        assert bench.ctx.up == 1
        assert bench.lost("late") == 2
        bench.api.faults.clear()
        bench.strikes()
        await passes(7)
        assert bench.lost("late") == 2
    assert bench.event()["count"] == 1


async def test_what_has_no_turn_for_an_hour_is_given_up_and_counted() -> None:
    async with Bench(per_minute=1).running() as bench:
        bench.strikes(*(victim(f"p{n}", "GPU-1", uid=f"uid-{n}") for n in range(100)))
        await passes(6000)
        assert len(bench.events()) == 60
        assert bench.lost("late") == 40


async def test_what_may_be_reported_in_an_hour_only_is_not_given_up_before() -> None:
    async with Bench(repeat="1h").running() as bench:
        bench.strikes()
        await passes(1)
        bench.strikes()
        await passes(3700)
        assert bench.lost("late") == 0
    assert bench.event()["count"] == 2


async def test_a_pod_that_is_refused_all_the_time_takes_no_other_s_turn() -> None:
    async with Bench(repeat="1m", per_minute=2).running() as bench:
        bench.api.faults["a"] = FOR_ONE["a webhook denies it"][0]
        for _ in range(300):
            bench.strikes(*(victim(pod, "GPU-1", uid=f"uid-{pod}") for pod in "ab"))
            await passes(1)
        await passes(120)
        assert bench.lost("denied") == 300
    assert bench.event()["involvedObject"]["name"] == "b"
    assert bench.event()["count"] == 300


async def test_an_event_that_meets_another_change_is_made_again() -> None:
    async with Bench().running() as bench:
        bench.api.answers.append(refused(409, "the object has been modified", "Conflict"))
        bench.strikes()
        await passes(60)
    assert bench.event()["count"] == 1


async def test_an_event_that_is_removed_between_two_attempts_is_made_again() -> None:
    async with Bench().running() as bench:
        there = ApiError("409 AlreadyExists", status=409, reason="AlreadyExists")
        bench.api.answers.append(there)
        bench.strikes()
        await passes(60)
        assert [method for _, method in bench.asked()] == ["POST", "PATCH", "POST"]
    assert bench.event()["count"] == 1


async def test_what_is_refused_again_is_counted_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench().running() as bench:
        bench.api.answers.extend([FOR_ONE["a webhook denies it"][0]] * 3)
        for _ in range(3):
            bench.strikes()
            await passes(700)
        assert bench.lost("denied") == 3
    given_out = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(given_out) == 1


async def test_an_event_whose_answer_was_lost_is_not_made_twice() -> None:
    async with Bench().running() as bench:
        bench.api.losing = 1
        bench.strikes()
        bench.strikes()
        await passes(6.5)
        bench.strikes()
        await passes(60)
        assert bench.ctx.up == 1
        assert [method for _, method in bench.asked()] == ["POST", "POST", "PATCH"]
        assert bench.event()["count"] == 2
        await passes(700)
    assert bench.event()["count"] == 3


async def test_a_change_whose_answer_was_lost_adds_nothing_twice() -> None:
    async with Bench(repeat="10s").running() as bench:
        bench.strikes()
        await passes(20)
        bench.strikes()
        bench.api.answers.append(ApiError("connection lost"))
        await passes(60)
    assert bench.event()["count"] == 2


async def test_requests_are_counted() -> None:
    async with Bench(repeat="10s").running() as bench:
        bench.api.answers.extend([None, FOR_ALL["no answer"], refused(500)])
        bench.strikes()
        await passes(20)
        bench.strikes()
        await passes(60)
        assert bench.ctx.counted("podgpu_sink_requests_total") == {
            "create ok": 1,
            "patch error": 1,
            "patch 500": 1,
            "patch ok": 1,
        }


async def test_a_stop_gives_the_request_under_way_its_time_and_begins_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    async with bench.running():
        bench.strikes()
        bench.strikes(code=79)
        await passes(5)
    assert bench.api.requests == []
    assert "XID errors are not told" not in caplog.text, "they weren't due"
    async with bench.running(bench.made(per_minute=1)):
        await passes(7)
    assert len(bench.events()) == 1
    assert "1 XID errors get no Event" in caplog.text
