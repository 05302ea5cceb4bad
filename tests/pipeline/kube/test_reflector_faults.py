"""What a reflector makes of answers that are wrong, out of date or no answers; virtual time."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from pipeline.base.errors import ApiError
from tests.pipeline.kube.recording import reflecting
from tests.support.kube import Collection, FakeApi, named, status

pytestmark = pytest.mark.looptime

EXPIRED = ApiError("410 Expired: too old", status=410, reason="Expired")
REFUSED = ApiError("connection refused")


async def test_expired_as_a_status_reads_again_with_the_last_version(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
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
        assert given_out.copy == {}
        assert given_out.lost_at == []


async def test_expired_in_the_stream_reads_again_and_what_went_meanwhile_is_gone(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(70)
        api.cut(REFUSED)
        collection.delete("ns", "a")
        collection.put(named("b"))
        collection.compact()
        await asyncio.sleep(10)
        assert api.kinds() == ["stream", "watch", "stream"]
        assert given_out.copy == {"b": "uid-b"}
        assert given_out.lost_at == []


async def test_a_last_version_that_is_not_served_either_is_left_out_once(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(70)
        api.answers.extend([EXPIRED, EXPIRED])
        api.cut()
        await asyncio.sleep(5)
        assert api.kinds() == ["stream", "watch", "stream", "stream"]
        assert "resourceVersion" not in api.requests[3][2]
        # At once after the answer that said so.
        assert api.requests[3][0] - api.requests[2][0] < 0.01
        assert given_out.given_out == ["replaced", "replaced"]


async def test_versions_that_went_back_as_after_a_restored_backup_are_found_out(
    api: FakeApi, collection: Collection
) -> None:
    collection.version = 9000
    collection.put(named("b"))
    async with reflecting(api) as given_out:
        await asyncio.sleep(70)
        collection.version, collection.oldest = 50, 50
        collection.log.clear()
        collection.put(named("c"))
        api.cut()
        await asyncio.sleep(10)
        assert given_out.copy == {"a": "uid-a", "b": "uid-b", "c": "uid-c"}
        collection.put(named("d"))
        await asyncio.sleep(1)
        assert "d" in given_out.copy


async def test_a_list_without_a_version_comes_in_pages(
    api: FakeApi, collection: Collection
) -> None:
    for number in range(1200):
        collection.put(named(f"p{number}"))
    api.answers.extend([ApiError("not that", status=422), EXPIRED])
    async with reflecting(api) as given_out:
        await asyncio.sleep(0.1)
        assert len(given_out.copy) == 1201
        assert given_out.given_out == ["replaced"]
        pages = [query for _, kind, query in api.requests if kind == "list"]
        assert [page.get("continue") for page in pages] == [None, None, "500", "1000"]
        assert all(page["limit"] == "500" for page in pages[1:])


async def test_pages_that_expire_in_the_middle_become_one_list(
    api: FakeApi, collection: Collection
) -> None:
    for number in range(1200):
        collection.put(named(f"p{number}"))
    api.answers.extend([ApiError("not that", status=422), EXPIRED, None, EXPIRED])
    async with reflecting(api) as given_out:
        await asyncio.sleep(0.1)
        assert len(given_out.copy) == 1201
        last = [query for _, kind, query in api.requests if kind == "list"][-1]
        assert "limit" not in last
        assert "continue" not in last


async def test_pages_without_an_end_are_given_up(api: FakeApi, collection: Collection) -> None:
    api.answers.extend([ApiError("not that", status=422)])
    endless: dict[str, Any] = {"metadata": {"continue": "x", "resourceVersion": "1"}, "items": []}
    collection.listed = lambda _: endless  # type: ignore[method-assign, assignment]
    async with reflecting(api) as given_out:
        await asyncio.sleep(1.5)
        assert len(api.requests) <= 2002
        assert "no end" in given_out.reasons()[0]


@pytest.mark.parametrize(
    "given_out",
    [
        status(500, "InternalError", "etcd is sick"),
        {"kind": "Status"},
        {},
        {"code": "many", "reason": 7, "message": None, "details": []},
    ],
)
async def test_errors_in_a_stream_end_in_reading_again_but_not_at_once(
    api: FakeApi, collection: Collection, given_out: dict[str, object]
) -> None:
    async with reflecting(api) as recorder:
        await asyncio.sleep(70)
        for _ in range(4):
            collection.error(given_out)
            await asyncio.sleep(40)
        assert "replaced" not in recorder.given_out[1:]
        collection.error(given_out)
        await asyncio.sleep(70)
        assert recorder.given_out == ["replaced", "replaced"]


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(
    api: FakeApi, collection: Collection
) -> None:
    async def ends(query: object) -> object:
        return
        yield

    async with reflecting(api) as given_out:
        await asyncio.sleep(70)
        collection.watched = ends  # type: ignore[method-assign, assignment]
        api.cut()
        await asyncio.sleep(600)
        assert len(api.requests) < 25
        assert set(given_out.reasons()) == {
            "/api/v1/pods: the server closes each watch immediately"
        }
        assert given_out.given_out == ["replaced"]
        assert given_out.confirmations == 0


async def test_a_server_that_breaks_each_beginning_is_not_hammered(api: FakeApi) -> None:
    async def ends(query: object) -> object:
        return
        yield

    api.collection.watched = ends  # type: ignore[method-assign, assignment]
    async with reflecting(api) as given_out:
        await asyncio.sleep(600)
        assert len(api.requests) < 25
        assert given_out.given_out == []
        assert "before the collection was complete" in given_out.reasons()[0]


async def test_silence_is_taken_for_a_dead_connection(api: FakeApi, collection: Collection) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(300)
        # Each silence ends a watch, as behind a server without bookmarks.
        assert len(api.requests) == 4
        assert all(75 <= b - a <= 77 for (a, *_), (b, *_) in pairwise(api.requests))
        assert given_out.lost_at == []
        assert given_out.confirmations >= 3
        assert given_out.given_out == ["replaced"]


@pytest.mark.parametrize("sent", [b"<html>", b"[]", b"{}", b'{"type":"ADDED"}', b"\xff", b"{" * 99])
async def test_what_is_no_event_ends_the_watch_and_is_named(api: FakeApi, sent: bytes) -> None:
    class Strange(FakeApi):
        strange = False

        async def _lines(self, *args: object) -> object:
            lines = super()._lines(*args)  # type: ignore[arg-type]
            async for line in lines:
                yield sent if self.strange else line
            return

    strange = Strange(api.collection)
    async with reflecting(strange) as given_out:
        await asyncio.sleep(70)
        strange.strange = True
        for number in range(2):
            api.collection.put(named(f"b{number}"))
            await asyncio.sleep(10)
        assert "is not JSON of the Kubernetes API" in given_out.reasons()[0]
        assert given_out.given_out == ["replaced"]
        strange.strange = False
        await asyncio.sleep(60)
        assert set(given_out.copy) == {"a", "b0", "b1"}


async def test_events_of_an_unknown_type_are_passed_over(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(1)
        collection._log("RENAMED", named("x"))
        collection.put(named("b"))
        await asyncio.sleep(1)
        assert given_out.given_out == ["replaced", "+b"]


@pytest.mark.parametrize("code", [401, 403])
async def test_what_a_person_has_to_fix_is_said_at_once(api: FakeApi, code: int) -> None:
    api.answers.append(ApiError("may not", status=code))
    async with reflecting(api) as given_out:
        await asyncio.sleep(0.1)
        assert given_out.reasons() == ["may not"]
        await asyncio.sleep(2)
        assert given_out.copy == {"a": "uid-a"}


async def test_a_pod_made_again_under_its_name_is_the_new_one(
    api: FakeApi, collection: Collection
) -> None:
    async with reflecting(api) as given_out:
        await asyncio.sleep(1)
        again = named("a")
        again["metadata"]["uid"] = "another"
        collection.put(again)
        await asyncio.sleep(1)
        assert given_out.given_out == ["replaced", "-a", "+a"]
        assert given_out.copy == {"a": "another"}
