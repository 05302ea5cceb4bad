"""A server that is down or says nothing: whether the sink is up, what is said, how it stops."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from pipeline.base.errors import ApiError
from tests.sinks.pods.support import KEY, Bench, held, path_of, pod_of, refused, uuids

pytestmark = pytest.mark.looptime(start=1000)

HOUR = 3600


def now() -> float:
    return asyncio.get_running_loop().time()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def ups(bench: Bench, seconds: int) -> float:
    """Return the part of the time for which the sink is up."""
    up = 0
    for _ in range(seconds // 5):
        await asyncio.sleep(5)
        up += bench.up
    return up * 5 / seconds


def down(bench: Bench, error: ApiError) -> None:
    def before(_method: str, _path: str) -> None:
        raise error

    bench.api.before = before


def hanging(bench: Bench) -> None:
    """Answer nothing: the client gives up after half a minute."""

    async def silence(path: str, query: Mapping[str, str]) -> bytes:
        await asyncio.sleep(30)
        raise ApiError(f"GET {path}: stopped responding", reason="SocketTimeoutError")

    bench.api.get = silence  # type: ignore[method-assign]


@pytest.mark.parametrize("status", [0, 403, 429])
@pytest.mark.parametrize("pods", ["a", "abc"])
async def test_an_hour_of_refusals_is_one_warning_and_the_sink_is_down(
    status: int, pods: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.has(*(pod_of(name) for name in pods))
    down(bench, refused(status))
    async with bench.supervised():
        bench.holds(*(held(name, index) for index, name in enumerate(pods)))
        assert await ups(bench, HOUR) < 0.01
        assert len(warned(caplog)) == 1
        # Asked after 1, 2, 4 ... 60 s, and once more than that by chance.
        assert len(bench.api.requests) < 80
        bench.api.before = lambda *_: None
        await bench.rests(80)
        assert bench.up
        assert all(KEY in bench.written(name) for name in pods)


async def test_the_pod_s_name_in_the_text_makes_no_news(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.has(*(pod_of(name) for name in "abc"))

    def before(method: str, path: str) -> None:
        raise ApiError(f"{method} {path}: connection refused", reason="OSError ECONNREFUSED")

    bench.api.before = before
    async with bench.supervised():
        bench.holds(held("a", 0), held("b", 1), held("c", 2))
        await bench.rests(HOUR)
        [given_out] = warned(caplog)
        assert "pods/a: connection refused" in given_out
        # Another kind of fault is news.
        down(bench, refused(503))
        await bench.rests(HOUR)
        assert len(warned(caplog)) == 2


async def test_what_is_no_pod_is_said_once_too(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    async def page(path: str, query: Mapping[str, str]) -> bytes:
        return b"<html>"

    bench.api.get = page  # type: ignore[method-assign]
    async with bench.supervised():
        bench.holds(held("a", 0), held("b", 1))
        assert await ups(bench, HOUR) < 0.01
    assert len(warned(caplog)) == 1


async def test_while_the_server_hangs_the_sink_is_not_up(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.has(pod_of())
    get = bench.api.get
    hanging(bench)
    async with bench.supervised():
        bench.holds(held("a", 0))
        assert await ups(bench, HOUR) < 0.02
        assert len(warned(caplog)) == 1
        bench.api.get = get  # type: ignore[method-assign]
        await bench.rests(90)
        assert bench.up
    assert bench.written() == {KEY: uuids(0)}


async def test_one_pod_that_fails_again_and_again_keeps_new_ones_waiting_for_one_attempt() -> None:
    bench = Bench()
    bench.has(*(pod_of(name) for name in "abc"), pod_of("new"))

    def before(method: str, path: str) -> None:
        if not path.endswith("/new"):
            raise refused(500)

    bench.api.before = before
    async with bench.supervised():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests(HOUR)
        bench.holds(held("a", 0), held("b", 1), held("new", 2))
        await bench.rests(75.1)
        assert bench.written("new") == {KEY: uuids(2)}


async def test_where_nothing_is_to_be_done_any_more_the_sink_is_up() -> None:
    bench = Bench()
    bench.has(pod_of())
    down(bench, refused(500))
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(60)
        assert not bench.up
        bench.holds()
        await bench.rests(80)
        assert bench.up


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_request_without_an_answer_holds_no_stop_up(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.has(pod_of(), pod_of("b"))

    def before(asked: str, _path: str) -> None:
        if asked == method:
            bench.api.takes = HOUR

    bench.api.before = before
    async with bench.supervised():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests(2)
        stopped = now()
    assert now() - stopped == pytest.approx(3, abs=0.1)
    assert warned(caplog) == ["pod ml/a: its annotations may be out of date: no response in time"]
    assert bench.counted()[f"{method.lower()} error"] == 1
    assert {path for _, _, path, _ in bench.api.requests} == {path_of("a")}


async def test_a_request_that_fails_while_the_sink_stops_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.api.takes, bench.api.losing = 1, 1
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(1.5)
    assert warned(caplog) == ["pod ml/a: its annotations may be out of date: connection lost"]
    # As it happens it has.
    assert bench.written() == {KEY: uuids(0)}


async def test_a_request_that_is_answered_in_time_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.api.takes = 1.5
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(1.6)
    assert bench.written() == {KEY: uuids(0)}
    assert warned(caplog) == []


async def test_a_new_attempt_holds_no_stop_up_either() -> None:
    bench = Bench()
    bench.has(pod_of())
    hanging(bench)
    async with bench.supervised():
        bench.holds(held("a", 0))
        # The first attempt ends after 30 s, the second begins a second later.
        await bench.rests(32)
        stopped = now()
    assert now() - stopped < 8.1


async def test_a_stop_while_it_waits_for_the_next_attempt_is_heard_at_once() -> None:
    bench = Bench()
    bench.has(pod_of())
    down(bench, refused(500))
    async with bench.supervised():
        bench.holds(held("a", 0))
        await bench.rests(600)
        stopped = now()
    assert now() - stopped < 0.1
