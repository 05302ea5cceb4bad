"""Errors and delays of the API server, and which Events are retried, dropped or counted."""

import logging

import pytest

from pipeline.base.errors import ApiError
from tests.sinks.events.support import ERRORS, Bench, refused, sleep, victim

pytestmark = pytest.mark.looptime

ALL_EVENTS_FAIL = {
    "no permission": refused(403, "events is forbidden: User may not create events"),
    "unknown credentials": refused(401),
    "too many requests": refused(429),
    "server error": refused(500),
    "no response": ApiError("can't be reached"),
}


@pytest.mark.parametrize("error", ALL_EVENTS_FAIL.values(), ids=ALL_EVENTS_FAIL)
async def test_a_fault_of_all_events_is_retried_until_it_is_over(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    async with Bench().running() as bench:
        bench.api.answers.extend([error] * 3)
        bench.add_error()
        await sleep(6.5)
        assert bench.ctx.up == 0
        bench.add_error()
        await sleep(60)
        assert bench.ctx.up == 1
        await sleep(600)
        assert bench.lost("denied") == bench.lost("invalid") == bench.lost("namespace") == 0
    assert sum(event["count"] for event in bench.events()) == 2
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1, "the warning is logged once"


async def test_the_log_names_the_missing_permission(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench().running() as bench:
        bench.api.answers.append(ALL_EVENTS_FAIL["no permission"])
        bench.add_error()
        await sleep(20)
    assert 'apiGroups [""], resources ["events"], verbs [create, patch]' in caplog.text


async def test_without_credentials_the_sink_is_down_until_there_are_some() -> None:
    bench = Bench()
    bench.ctx.api = None
    async with bench.running():
        bench.add_error()
        await sleep(30)
        assert bench.ctx.up == 0
        bench.ctx.api = bench.api
        await sleep(60)
        assert bench.ctx.up == 1
    assert bench.event()["count"] == 1


async def test_retry_after_of_the_server_is_obeyed() -> None:
    async with Bench().running() as bench:
        busy = ApiError("busy", status=429, reason="TooManyRequests", retry_after=100)
        bench.api.answers.append(busy)
        bench.add_error()
        await sleep(300)
        first, second = (at for at, _ in bench.requests())
    assert second - first >= 100


DENIAL = 'admission webhook "validation.example.com" denied the request: no'
ONE_EVENT_FAILS = {
    "a webhook denies it": (refused(403, DENIAL, "Forbidden"), "denied"),
    "the server rejects it": (refused(422, "is invalid", "Invalid"), "invalid"),
    "the server cannot parse it": (refused(400, "bad", "BadRequest"), "invalid"),
    "the namespace is missing": (
        refused(404, 'namespaces "ml" not found', "NotFound"),
        "namespace",
    ),
    "the namespace is being deleted": (
        refused(
            403,
            "unable to create new content in namespace ml because it is being terminated",
            "Forbidden",
        ),
        "namespace",
    ),
}


@pytest.mark.parametrize(("error", "reason"), ONE_EVENT_FAILS.values(), ids=ONE_EVENT_FAILS)
async def test_an_event_refused_for_one_pod_does_not_delay_other_pods(
    error: ApiError, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Bench().running() as bench:
        bench.api.answers.append(error)
        bench.add_error(victim("a", "GPU-1", uid="uid-a"), victim("b", "GPU-1", uid="uid-b"))
        await sleep(7)
        assert bench.ctx.up == 1
        assert bench.lost(reason) == 1
        assert bench.event()["involvedObject"]["name"] == "b"
    assert "no Event on pod ml/a" in caplog.text


async def test_a_failure_for_one_pod_does_not_delay_other_pods() -> None:
    """A webhook of one namespace is down; podgpu sees this as an error of the server."""
    async with Bench().running() as bench:
        dead = "Internal error occurred: failed calling webhook"
        bench.api.faults["a"] = refused(500, dead, "InternalError")
        pods = [victim(pod, "GPU-1", uid=f"uid-{pod}") for pod in "abcd"]
        bench.add_error(*pods)
        await sleep(600)
        found = {event["involvedObject"]["name"] for event in bench.events()}
        assert found == {"b", "c", "d"}
        bench.api.faults.clear()
        await sleep(120)
    assert {event["involvedObject"]["name"] for event in bench.events()} == {"a", "b", "c", "d"}
    assert sum(bench.ctx.counted(ERRORS).values()) == 0


async def test_a_hanging_webhook_for_one_pod_does_not_delay_other_pods() -> None:
    """The default timeout of a webhook is 10 seconds, which is longer than podgpu's timeout."""
    async with Bench().running() as bench:
        bench.api.delays["a"] = 10
        bench.api.faults["a"] = refused(500, "failed calling webhook", "InternalError")
        b = victim("b", "GPU-1", uid="uid-b")
        bench.add_error(victim("a", "GPU-1", uid="uid-a"), b)
        await sleep(300)
        bench.add_error(b)
        await sleep(600)
        assert bench.event()["involvedObject"]["name"] == "b"
        assert bench.event()["count"] == 2
        bench.api.delays.clear()
        bench.api.faults.clear()
        await sleep(120)
        assert bench.ctx.up == 1
    assert [event["count"] for event in bench.events()] == [2, 1]


async def test_an_event_that_fails_for_an_hour_is_dropped_and_counted() -> None:
    async with Bench().running() as bench:
        bench.api.faults["a"] = refused(500, "failed calling webhook", "InternalError")
        bench.add_error()
        bench.add_error()
        await sleep(3590)
        assert bench.ctx.up == 0
        assert bench.lost("late") == 0
        await sleep(100)
        assert bench.ctx.up == 1
        assert bench.lost("late") == 2
        bench.api.faults.clear()
        bench.add_error()
        await sleep(7)
        assert bench.lost("late") == 2
    assert bench.event()["count"] == 1


async def test_an_event_over_the_rate_limit_for_an_hour_is_dropped_and_counted() -> None:
    async with Bench(per_minute=1).running() as bench:
        bench.add_error(*(victim(f"p{n}", "GPU-1", uid=f"uid-{n}") for n in range(100)))
        await sleep(6000)
        assert len(bench.events()) == 60
        assert bench.lost("late") == 40


async def test_an_event_that_waits_for_its_repeat_interval_is_not_dropped() -> None:
    async with Bench(repeat="1h").running() as bench:
        bench.add_error()
        await sleep(1)
        bench.add_error()
        await sleep(3700)
        assert bench.lost("late") == 0
    assert bench.event()["count"] == 2


@pytest.mark.slow
async def test_a_pod_that_is_always_refused_does_not_use_up_the_rate_limit() -> None:
    async with Bench(repeat="1m", per_minute=2).running() as bench:
        bench.api.faults["a"] = ONE_EVENT_FAILS["a webhook denies it"][0]
        for _ in range(300):
            bench.add_error(*(victim(pod, "GPU-1", uid=f"uid-{pod}") for pod in "ab"))
            await sleep(1)
        await sleep(120)
        assert bench.lost("denied") == 300
    assert bench.event()["involvedObject"]["name"] == "b"
    assert bench.event()["count"] == 300


async def test_a_conflict_with_another_change_is_retried() -> None:
    async with Bench().running() as bench:
        bench.api.answers.append(refused(409, "the object has been modified", "Conflict"))
        bench.add_error()
        await sleep(60)
    assert bench.event()["count"] == 1


async def test_an_event_removed_between_two_attempts_is_created_again() -> None:
    async with Bench().running() as bench:
        exists = ApiError("409 AlreadyExists", status=409, reason="AlreadyExists")
        bench.api.answers.append(exists)
        bench.add_error()
        await sleep(60)
        assert [method for _, method in bench.requests()] == ["POST", "PATCH", "POST"]
    assert bench.event()["count"] == 1


async def test_repeated_refusals_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench().running() as bench:
        bench.api.answers.extend([ONE_EVENT_FAILS["a webhook denies it"][0]] * 3)
        for _ in range(3):
            bench.add_error()
            await sleep(700)
        assert bench.lost("denied") == 3
    found = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(found) == 1


async def test_an_event_whose_response_was_lost_is_not_created_twice() -> None:
    async with Bench().running() as bench:
        bench.api.losing = 1
        bench.add_error()
        bench.add_error()
        await sleep(6.5)
        bench.add_error()
        await sleep(60)
        assert bench.ctx.up == 1
        assert [method for _, method in bench.requests()] == ["POST", "POST", "PATCH"]
        assert bench.event()["count"] == 2
        await sleep(700)
    assert bench.event()["count"] == 3


async def test_a_patch_whose_response_was_lost_is_not_added_twice() -> None:
    async with Bench(repeat="10s").running() as bench:
        bench.add_error()
        await sleep(20)
        bench.add_error()
        bench.api.answers.append(ApiError("connection lost"))
        await sleep(60)
    assert bench.event()["count"] == 2


async def test_requests_are_counted_by_verb_and_status() -> None:
    async with Bench(repeat="10s").running() as bench:
        bench.api.answers.extend([None, ALL_EVENTS_FAIL["no response"], refused(500)])
        bench.add_error()
        await sleep(20)
        bench.add_error()
        await sleep(60)
        assert bench.ctx.counted("podgpu_sink_requests_total") == {
            "create ok": 1,
            "patch error": 1,
            "patch 500": 1,
            "patch ok": 1,
        }


async def test_a_stop_waits_for_the_request_in_flight_and_starts_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    async with bench.running():
        bench.add_error()
        bench.add_error(code=79)
        await sleep(5)
    assert bench.api.requests == []
    assert "XID errors have no Event yet" not in caplog.text, "they were not due yet"
    async with bench.running(bench.new_sink(per_minute=1)):
        await sleep(7)
    assert len(bench.events()) == 1
    assert "1 XID errors have no Event yet" in caplog.text
