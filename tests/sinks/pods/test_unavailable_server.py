"""A server that is down or does not respond: state of the sink, its log, and its stop."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from pipeline.base.errors import ApiError
from tests.sinks.pods.support import KEY, Bench, api_error, claim, path_of, pod_of, uuids

pytestmark = pytest.mark.looptime(start=1000)

HOUR = 3600


def now() -> float:
    return asyncio.get_running_loop().time()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def up_fraction(bench: Bench, seconds: int) -> float:
    """Return the fraction of the time for which the sink is up."""
    up = 0
    for _ in range(seconds // 5):
        await asyncio.sleep(5)
        up += bench.up
    return up * 5 / seconds


def fail_all_requests(bench: Bench, error: ApiError) -> None:
    def before(_method: str, _path: str) -> None:
        raise error

    bench.api.before = before


def hang(bench: Bench) -> None:
    """Let the server not respond: the client gives up after half a minute."""

    async def silence(path: str, query: Mapping[str, str]) -> bytes:
        await asyncio.sleep(30)
        raise ApiError(f"GET {path}: stopped responding", reason="SocketTimeoutError")

    bench.api.get = silence  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize(("status", "pods"), [(0, "a"), (0, "abc"), (403, "abc"), (429, "a")])
async def test_an_hour_of_errors_is_one_warning_and_the_sink_is_down(
    status: int, pods: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.add_pods(*(pod_of(name) for name in pods))
    fail_all_requests(bench, api_error(status))
    async with bench.supervised():
        bench.set_claims(*(claim(name, index) for index, name in enumerate(pods)))
        assert await up_fraction(bench, HOUR) < 0.01
        assert len(warned(caplog)) == 1
        # Retries after 1, 2, 4 ... 60 s, with random deviations.
        assert len(bench.api.requests) < 80
        bench.api.before = lambda *_: None
        await bench.wait(80)
        assert bench.up
        assert all(KEY in bench.written(name) for name in pods)


async def test_the_same_error_of_another_pod_is_not_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.add_pods(*(pod_of(name) for name in "abc"))

    def before(method: str, path: str) -> None:
        raise ApiError(f"{method} {path}: connection refused", reason="OSError ECONNREFUSED")

    bench.api.before = before
    async with bench.supervised():
        bench.set_claims(claim("a", 0), claim("b", 1), claim("c", 2))
        await bench.wait(HOUR)
        [message] = warned(caplog)
        assert "pods/a: connection refused" in message
        # Another kind of error is logged.
        fail_all_requests(bench, api_error(503))
        await bench.wait(HOUR)
        assert len(warned(caplog)) == 2


@pytest.mark.slow
async def test_responses_that_are_not_a_pod_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()

    async def page(path: str, query: Mapping[str, str]) -> bytes:
        return b"<html>"

    bench.api.get = page  # type: ignore[method-assign]
    async with bench.supervised():
        bench.set_claims(claim("a", 0), claim("b", 1))
        assert await up_fraction(bench, HOUR) < 0.01
    assert len(warned(caplog)) == 1


@pytest.mark.slow
async def test_the_sink_is_down_while_the_server_hangs(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    get = bench.api.get
    hang(bench)
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        assert await up_fraction(bench, HOUR) < 0.02
        assert len(warned(caplog)) == 1
        bench.api.get = get  # type: ignore[method-assign]
        await bench.wait(90)
        assert bench.up
    assert bench.written() == {KEY: uuids(0)}


async def test_a_pod_that_fails_repeatedly_delays_new_pods_by_one_attempt() -> None:
    bench = Bench()
    bench.add_pods(*(pod_of(name) for name in "abc"), pod_of("new"))

    def before(method: str, path: str) -> None:
        if not path.endswith("/new"):
            raise api_error(500)

    bench.api.before = before
    async with bench.supervised():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait(HOUR)
        bench.set_claims(claim("a", 0), claim("b", 1), claim("new", 2))
        await bench.wait(75.1)
        assert bench.written("new") == {KEY: uuids(2)}


async def test_the_sink_is_up_when_no_pod_is_left_to_annotate() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    fail_all_requests(bench, api_error(500))
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(60)
        assert not bench.up
        bench.set_claims()
        await bench.wait(80)
        assert bench.up


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_request_without_a_response_does_not_delay_the_stop(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.add_pods(pod_of(), pod_of("b"))

    def before(sent: str, _path: str) -> None:
        if sent == method:
            bench.api.takes = HOUR

    bench.api.before = before
    async with bench.supervised():
        bench.set_claims(claim("a", 0), claim("b", 1))
        await bench.wait(2)
        stopped = now()
    assert now() - stopped == pytest.approx(3, abs=0.1)
    assert warned(caplog) == ["pod ml/a: its annotations may be out of date: no response in time"]
    assert bench.request_counts()[f"{method.lower()} error"] == 1
    assert {path for _, _, path, _ in bench.api.requests} == {path_of("a")}


async def test_a_request_that_fails_during_the_stop_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.api.takes, bench.api.losing = 1, 1
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(1.5)
    assert warned(caplog) == ["pod ml/a: its annotations may be out of date: connection lost"]
    # In this test the lost patch was applied.
    assert bench.written() == {KEY: uuids(0)}


async def test_the_stop_waits_for_a_response_that_arrives_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    bench.api.takes = 1.5
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(1.6)
    assert bench.written() == {KEY: uuids(0)}
    assert warned(caplog) == []


async def test_a_retry_without_a_response_does_not_delay_the_stop() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    hang(bench)
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        # The first attempt ends after 30 s, the second starts a second later.
        await bench.wait(32)
        stopped = now()
    assert now() - stopped < 8.1


async def test_a_stop_ends_the_wait_for_a_retry_immediately() -> None:
    bench = Bench()
    bench.add_pods(pod_of())
    fail_all_requests(bench, api_error(500))
    async with bench.supervised():
        bench.set_claims(claim("a", 0))
        await bench.wait(600)
        stopped = now()
    assert now() - stopped < 0.1
