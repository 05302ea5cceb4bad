"""What a reflector asks for and tells, whatever the server does; on virtual time."""

import asyncio
from itertools import pairwise

import pytest

from pipeline.base.errors import ApiError
from tests.pipeline.kube.recording import reflecting
from tests.support.kube import Collection, FakeApi, named

pytestmark = pytest.mark.looptime

EXPIRED = ApiError("410 Expired: too old", status=410, reason="Expired")
REFUSED = ApiError("connection refused")


async def test_one_stream_gives_the_collection_and_its_changes(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(1)
        assert given_out.copy == {"a": "uid-a"}
        collection.put(named("b"))
        collection.put(named("a", spec={}))
        collection.delete("ns", "a")
        await asyncio.sleep(1)
    assert given_out.given_out == ["replaced", "+b", "+a", "-a"]
    assert given_out.copy == {"b": "uid-b"}
    assert api.kinds() == ["stream"]
    query = api.requests[0][2]
    assert query["resourceVersionMatch"] == "NotOlderThan"
    assert query["resourceVersion"] == "0"


async def test_objects_that_come_and_go_while_the_collection_is_reported_leave_no_trace(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(0)
        collection.put(named("b"))
        collection.delete("ns", "b")
        await asyncio.sleep(1)
        assert given_out.copy == {"a": "uid-a"}


@pytest.mark.parametrize("code", [400, 404, 405, 406, 415, 422, 500, 501])
async def test_a_server_without_such_streams_is_asked_for_a_list_at_once_and_remembered(
    api: FakeApi, collection: Collection, code: int
) -> None:
    api.answers.append(ApiError("not that", status=code))
    async with reflecting(api) as given_out:
        await asyncio.sleep(0.1)
        assert given_out.copy == {"a": "uid-a"}
        assert api.kinds() == ["stream", "list", "watch"]
        assert api.requests[1][2]["resourceVersion"] == "0"
        assert "limit" not in api.requests[1][2]
        assert api.requests[2][2]["resourceVersion"] == str(collection.version)
        collection.compact()
        await asyncio.sleep(5)
        assert api.kinds() == ["stream", "list", "watch", "list", "watch"]
        assert given_out.lost_at == []


async def test_a_server_that_refuses_in_the_stream_is_asked_for_a_list_too(
    api: FakeApi, collection: Collection
) -> None:
    collection.streams = False
    async with reflecting(api) as given_out:
        await asyncio.sleep(0.1)
        assert given_out.given_out == ["replaced"]
        assert api.kinds() == ["stream", "list", "watch"]


async def test_a_server_that_knows_nothing_of_such_streams_is_asked_for_a_list_in_the_end(
    api: FakeApi, collection: Collection
) -> None:
    collection.ignores_streams = True
    async with reflecting(api) as given_out:
        for number in range(30):
            await asyncio.sleep(1)
            collection.put(named(f"b{number}"))
        await asyncio.sleep(1)
        assert len(given_out.copy) == 31
        assert given_out.given_out[0] == "replaced"
        assert api.kinds() == ["stream", "list", "watch"]
        assert api.requests[1][0] - api.requests[0][0] == pytest.approx(15, abs=0.1)


async def test_bookmarks_move_the_version_and_confirm(api: FakeApi, collection: Collection) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(1)
        before = given_out.confirmations
        collection.bookmark()
        await asyncio.sleep(1)
        assert given_out.confirmations == before + 1
        assert given_out.given_out == ["replaced"]
        api.cut()
        await asyncio.sleep(1)
        assert api.kinds() == ["stream", "watch"]
        assert api.requests[1][2]["resourceVersion"] == str(collection.version)


async def test_a_watch_that_the_server_ends_in_its_time_continues_at_once(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(10)
        api.cut()
        await asyncio.sleep(0.1)
        assert api.kinds() == ["stream", "watch"]
        assert given_out.lost_at == []
        collection.put(named("b"))
        await asyncio.sleep(0.1)
        assert given_out.given_out == ["replaced", "+b"]


async def test_a_break_is_unattributed_news_and_nothing_is_read_again(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(70)
        collection.bookmark()
        await asyncio.sleep(1)
        version = str(collection.version)
        api.cut(ApiError("connection reset"))
        collection.put(named("b"))
        await asyncio.sleep(2)
        assert given_out.lost_at == []
        assert given_out.given_out == ["replaced", "+b"]
        assert api.kinds() == ["stream", "watch"]
        assert api.requests[1][2]["resourceVersion"] == version
        assert 0.8 <= api.requests[1][0] - 71 <= 1.6


@pytest.mark.parametrize("code", [0, 401, 403, 408, 429, 502, 503, 504])
async def test_an_outage_is_waited_for_without_reading_again(
    api: FakeApi, collection: Collection, code: int
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(70)
        api.answers.extend([ApiError("out", status=code)] * 20)
        api.cut(ApiError("connection reset"))
        await asyncio.sleep(600)
        assert given_out.given_out == ["replaced"]
        assert set(api.kinds()[1:]) == {"watch"}
        gaps = [b - a for (a, *_), (b, *_) in pairwise(api.requests[1:])]
        for number, gap in enumerate(gaps):
            low = min(30, 0.8 * 2 ** (number + 1))
            assert low <= gap <= 2 * low
        assert given_out.reasons()
        assert set(given_out.reasons()) == {"out"}


async def test_when_the_server_is_back_the_delays_restart(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(70)
        api.answers.extend([REFUSED] * 6)
        api.cut(REFUSED)
        await asyncio.sleep(200)
        assert not api.answers
        before = given_out.confirmations
        collection.put(named("b"))
        await asyncio.sleep(5)
        assert given_out.copy == {"a": "uid-a", "b": "uid-b"}
        assert given_out.confirmations > before
        await asyncio.sleep(70)
        lost = len(given_out.lost_at)
        broke_at = asyncio.get_running_loop().time()
        api.cut(REFUSED)
        await asyncio.sleep(5)
        assert api.requests[-1][0] - broke_at <= 1.6
        assert len(given_out.lost_at) == lost


async def test_how_long_a_server_asks_to_wait_is_kept_to_within_reason(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api):
        await asyncio.sleep(1)
        api.answers.append(ApiError("busy", status=429, retry_after=40))
        api.answers.append(ApiError("busy", status=429, retry_after=1e9))
        api.cut()
        await asyncio.sleep(1300)
        times = [at for at, *_ in api.requests]
        assert 40 <= times[2] - times[1] <= 80
        assert 300 <= times[3] - times[2] <= 600
