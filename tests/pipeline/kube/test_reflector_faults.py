"""How a reflector handles invalid, outdated and missing responses, in virtual time."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from tests.pipeline.kube.recorder import reflecting
from tests.support.kube import Collection, FakeApi, named, status

pytestmark = pytest.mark.looptime

EXPIRED = ApiError("410 Expired: too old", status=410, reason="Expired")
REFUSED = ApiError("connection refused")


async def test_after_a_410_response_the_collection_is_read_again_with_the_last_version(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        version = str(collection.version)
        api.answers.append(EXPIRED)
        collection.delete("ns", "a")
        await asyncio.sleep(0.1)
        version = str(collection.version)
        api.cut()
        await asyncio.sleep(5)
        assert api.kinds() == ["stream", "watch", "stream"]
        assert api.requests[2][2]["resourceVersion"] == version
        assert recorder.copy == {}
        assert recorder.lost_at == []


async def test_after_an_expired_error_in_the_stream_deleted_objects_are_removed(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        api.cut(REFUSED)
        collection.delete("ns", "a")
        collection.put(named("b"))
        collection.compact()
        await asyncio.sleep(10)
        assert api.kinds() == ["stream", "watch", "stream"]
        assert recorder.copy == {"b": "uid-b"}
        assert recorder.lost_at == []


async def test_if_the_last_version_expired_too_the_next_request_has_no_version(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        api.answers.extend([EXPIRED, EXPIRED])
        api.cut()
        await asyncio.sleep(5)
        assert api.kinds() == ["stream", "watch", "stream", "stream"]
        assert "resourceVersion" not in api.requests[3][2]
        # Immediately after the response that refused the version.
        assert api.requests[3][0] - api.requests[2][0] < 0.01
        assert recorder.calls == ["replaced", "replaced"]


async def test_lower_versions_after_a_restored_backup_are_handled(
    api: FakeApi, collection: Collection
) -> None:
    collection.version = 9000
    collection.put(named("b"))
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        collection.version, collection.oldest = 50, 50
        collection.log.clear()
        collection.put(named("c"))
        api.cut()
        await asyncio.sleep(10)
        assert recorder.copy == {"a": "uid-a", "b": "uid-b", "c": "uid-c"}
        collection.put(named("d"))
        await asyncio.sleep(1)
        assert "d" in recorder.copy


async def test_a_list_without_a_version_is_read_in_pages(
    api: FakeApi, collection: Collection
) -> None:
    for number in range(1200):
        collection.put(named(f"p{number}"))
    api.answers.extend([ApiError("not that", status=422), EXPIRED])
    async with reflecting(api) as recorder:
        await asyncio.sleep(0.1)
        assert len(recorder.copy) == 1201
        assert recorder.calls == ["replaced"]
        pages = [query for _, kind, query in api.requests if kind == "list"]
        assert [page.get("continue") for page in pages] == [None, None, "500", "1000"]
        assert all(page["limit"] == "500" for page in pages[1:])


async def test_if_a_page_expires_the_whole_list_is_requested(
    api: FakeApi, collection: Collection
) -> None:
    for number in range(1200):
        collection.put(named(f"p{number}"))
    api.answers.extend([ApiError("not that", status=422), EXPIRED, None, EXPIRED])
    async with reflecting(api) as recorder:
        await asyncio.sleep(0.1)
        assert len(recorder.copy) == 1201
        last = [query for _, kind, query in api.requests if kind == "list"][-1]
        assert "limit" not in last
        assert "continue" not in last


async def test_a_list_with_endless_pages_is_an_error(api: FakeApi, collection: Collection) -> None:
    api.answers.extend([ApiError("not that", status=422)])
    endless: dict[str, Any] = {"metadata": {"continue": "x", "resourceVersion": "1"}, "items": []}
    collection.listed = lambda _: endless  # type: ignore[method-assign, assignment]
    async with reflecting(api) as recorder:
        await asyncio.sleep(1.5)
        assert len(api.requests) <= 2002
        assert "no end" in recorder.reasons()[0]


@pytest.mark.parametrize(
    "error",
    [
        status(500, "InternalError", "etcd is sick"),
        {"kind": "Status"},
        {},
        {"code": "many", "reason": 7, "message": None, "details": []},
    ],
)
async def test_repeated_errors_in_a_stream_lead_to_a_new_list_after_a_delay(
    api: FakeApi, collection: Collection, error: dict[str, object]
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        for _ in range(4):
            collection.error(error)
            await asyncio.sleep(40)
        assert "replaced" not in recorder.calls[1:]
        collection.error(error)
        await asyncio.sleep(70)
        assert recorder.calls == ["replaced", "replaced"]


async def test_a_server_that_closes_each_watch_immediately_gets_few_requests(
    api: FakeApi, collection: Collection
) -> None:
    async def empty_stream(query: object) -> object:
        return
        yield

    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        collection.watched = empty_stream  # type: ignore[method-assign, assignment]
        api.cut()
        await asyncio.sleep(600)
        assert len(api.requests) < 25
        assert set(recorder.reasons()) == {"/api/v1/pods: the server closes each watch immediately"}
        assert recorder.calls == ["replaced"]
        assert recorder.confirmations == 0


async def test_a_server_that_closes_each_initial_stream_gets_few_requests(api: FakeApi) -> None:
    async def empty_stream(query: object) -> object:
        return
        yield

    api.collection.watched = empty_stream  # type: ignore[method-assign, assignment]
    async with reflecting(api) as recorder:
        await asyncio.sleep(600)
        assert len(api.requests) < 25
        assert recorder.calls == []
        assert "before the collection was complete" in recorder.reasons()[0]


async def test_a_silent_watch_counts_as_a_broken_connection(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(300)
        # Each period of silence ends a watch, as with a server that sends no bookmarks.
        assert len(api.requests) == 4
        assert all(75 <= b - a <= 77 for (a, *_), (b, *_) in pairwise(api.requests))
        assert recorder.lost_at == []
        assert recorder.confirmations >= 3
        assert recorder.calls == ["replaced"]


@pytest.mark.parametrize("sent", [b"<html>", b"[]", b"{}", b'{"type":"ADDED"}', b"\xff", b"{" * 99])
async def test_an_invalid_event_ends_the_watch_and_is_reported(api: FakeApi, sent: bytes) -> None:
    class ApiWithInvalidLines(FakeApi):
        is_invalid = False

        async def _lines(self, *args: object) -> object:
            lines = super()._lines(*args)  # type: ignore[arg-type]
            async for line in lines:
                yield sent if self.is_invalid else line
            return

    invalid_api = ApiWithInvalidLines(api.collection)
    async with reflecting(invalid_api) as recorder:
        await asyncio.sleep(70)
        invalid_api.is_invalid = True
        for number in range(2):
            api.collection.put(named(f"b{number}"))
            await asyncio.sleep(10)
        assert "is not JSON of the Kubernetes API" in recorder.reasons()[0]
        assert recorder.calls == ["replaced"]
        invalid_api.is_invalid = False
        await asyncio.sleep(60)
        assert set(recorder.copy) == {"a", "b0", "b1"}


async def test_events_of_an_unknown_type_are_ignored(api: FakeApi, collection: Collection) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(1)
        collection._log("RENAMED", named("x"))
        collection.put(named("b"))
        await asyncio.sleep(1)
        assert recorder.calls == ["replaced", "+b"]


@pytest.mark.parametrize("code", [401, 403])
async def test_missing_permissions_are_reported_immediately(api: FakeApi, code: int) -> None:
    api.answers.append(ApiError("may not", status=code))
    async with reflecting(api) as recorder:
        await asyncio.sleep(0.1)
        assert recorder.reasons() == ["may not"]
        await asyncio.sleep(2)
        assert recorder.copy == {"a": "uid-a"}


async def test_a_pod_recreated_with_the_same_name_replaces_the_old_one(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(1)
        recreated = named("a")
        recreated["metadata"]["uid"] = "another"
        collection.put(recreated)
        await asyncio.sleep(1)
        assert recorder.calls == ["replaced", "-a", "+a"]
        assert recorder.copy == {"a": "another"}
