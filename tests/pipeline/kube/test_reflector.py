"""What a reflector requests and reports, in virtual time."""

import asyncio
from itertools import pairwise

import pytest

from pipeline.base.errors import ApiError
from tests.pipeline.kube.recorder import reflecting
from tests.support.kube import Collection, FakeApi, named

pytestmark = pytest.mark.looptime

EXPIRED = ApiError("410 Expired: too old", status=410, reason="Expired")
REFUSED = ApiError("connection refused")


async def test_one_stream_yields_the_collection_and_its_changes(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(1)
        assert recorder.copy == {"a": "uid-a"}
        collection.put(named("b"))
        collection.put(named("a", spec={}))
        collection.delete("ns", "a")
        await asyncio.sleep(1)
    assert recorder.calls == ["replaced", "+b", "+a", "-a"]
    assert recorder.copy == {"b": "uid-b"}
    assert api.kinds() == ["stream"]
    query = api.requests[0][2]
    assert query["resourceVersionMatch"] == "NotOlderThan"
    assert query["resourceVersion"] == "0"


async def test_an_object_deleted_during_the_initial_events_is_not_in_the_copy(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(0)
        collection.put(named("b"))
        collection.delete("ns", "b")
        await asyncio.sleep(1)
        assert recorder.copy == {"a": "uid-a"}


@pytest.mark.parametrize("code", [400, 404, 405, 406, 415, 422, 500, 501])
async def test_a_server_without_streaming_lists_is_remembered_and_lists_are_requested(
    api: FakeApi, collection: Collection, code: int
) -> None:
    api.answers.append(ApiError("not that", status=code))
    async with reflecting(api) as recorder:
        await asyncio.sleep(0.1)
        assert recorder.copy == {"a": "uid-a"}
        assert api.kinds() == ["stream", "list", "watch"]
        assert api.requests[1][2]["resourceVersion"] == "0"
        assert "limit" not in api.requests[1][2]
        assert api.requests[2][2]["resourceVersion"] == str(collection.version)
        collection.compact()
        await asyncio.sleep(5)
        assert api.kinds() == ["stream", "list", "watch", "list", "watch"]
        assert recorder.lost_at == []


async def test_after_a_refusal_inside_the_stream_a_list_is_requested(
    api: FakeApi, collection: Collection
) -> None:
    collection.streams = False
    async with reflecting(api) as recorder:
        await asyncio.sleep(0.1)
        assert recorder.calls == ["replaced"]
        assert api.kinds() == ["stream", "list", "watch"]


async def test_a_server_that_ignores_streaming_lists_is_requested_a_list_after_a_timeout(
    api: FakeApi, collection: Collection
) -> None:
    collection.ignores_streams = True
    async with reflecting(api) as recorder:
        for number in range(30):
            await asyncio.sleep(1)
            collection.put(named(f"b{number}"))
        await asyncio.sleep(1)
        assert len(recorder.copy) == 31
        assert recorder.calls[0] == "replaced"
        assert api.kinds() == ["stream", "list", "watch"]
        assert api.requests[1][0] - api.requests[0][0] == pytest.approx(15, abs=0.1)


async def test_a_bookmark_confirms_the_collection_and_updates_the_version(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(1)
        before = recorder.confirmations
        collection.bookmark()
        await asyncio.sleep(1)
        assert recorder.confirmations == before + 1
        assert recorder.calls == ["replaced"]
        api.cut()
        await asyncio.sleep(1)
        assert api.kinds() == ["stream", "watch"]
        assert api.requests[1][2]["resourceVersion"] == str(collection.version)


async def test_a_watch_that_the_server_closes_normally_restarts_immediately(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(10)
        api.cut()
        await asyncio.sleep(0.1)
        assert api.kinds() == ["stream", "watch"]
        assert recorder.lost_at == []
        collection.put(named("b"))
        await asyncio.sleep(0.1)
        assert recorder.calls == ["replaced", "+b"]


async def test_a_short_interruption_is_not_reported_and_the_watch_resumes(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        collection.bookmark()
        await asyncio.sleep(1)
        version = str(collection.version)
        api.cut(ApiError("connection reset"))
        collection.put(named("b"))
        await asyncio.sleep(2)
        assert recorder.lost_at == []
        assert recorder.calls == ["replaced", "+b"]
        assert api.kinds() == ["stream", "watch"]
        assert api.requests[1][2]["resourceVersion"] == version
        assert 0.8 <= api.requests[1][0] - 71 <= 1.6


@pytest.mark.parametrize("code", [0, 401, 403, 408, 429, 502, 503, 504])
async def test_during_an_outage_only_watches_are_retried_with_growing_delays(
    api: FakeApi, collection: Collection, code: int
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        api.answers.extend([ApiError("out", status=code)] * 20)
        api.cut(ApiError("connection reset"))
        await asyncio.sleep(600)
        assert recorder.calls == ["replaced"]
        assert set(api.kinds()[1:]) == {"watch"}
        gaps = [b - a for (a, *_), (b, *_) in pairwise(api.requests[1:])]
        for number, gap in enumerate(gaps):
            minimum = min(30, 0.8 * 2 ** (number + 1))
            assert minimum <= gap <= 2 * minimum
        assert recorder.reasons()
        assert set(recorder.reasons()) == {"out"}


async def test_after_an_outage_the_retry_delays_start_from_the_minimum(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        api.answers.extend([REFUSED] * 6)
        api.cut(REFUSED)
        await asyncio.sleep(200)
        assert not api.answers
        before = recorder.confirmations
        collection.put(named("b"))
        await asyncio.sleep(5)
        assert recorder.copy == {"a": "uid-a", "b": "uid-b"}
        assert recorder.confirmations > before
        await asyncio.sleep(70)
        reported = len(recorder.lost_at)
        interrupted_at = asyncio.get_running_loop().time()
        api.cut(REFUSED)
        await asyncio.sleep(5)
        assert api.requests[-1][0] - interrupted_at <= 1.6
        assert len(recorder.lost_at) == reported


async def test_the_retry_delay_of_the_server_is_followed_up_to_a_limit(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api):
        await asyncio.sleep(1)
        api.answers.append(ApiError("busy", status=429, retry_after=40))
        api.answers.append(ApiError("busy", status=429, retry_after=1e9))
        api.cut()
        await asyncio.sleep(1300)
        times = [server_at for server_at, *_ in api.requests]
        assert 40 <= times[2] - times[1] <= 80
        assert 300 <= times[3] - times[2] <= 600
