"""Keeps a copy of a collection true: reads it, follows its changes, and mends what breaks."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import msgspec
import orjson

from pipeline.base.backoff import Backoff
from pipeline.base.clock import Clock
from pipeline.base.errors import ApiError
from pipeline.base.safe_text import line
from pipeline.component.contracts import KubeApi
from pipeline.kube.api_errors import status_error
from pipeline.kube.json_access import as_dict, as_text
from pipeline.kube.list_watch import ListWatch, Step

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_SILENCE: Final = 75.0
"""Seconds; a server that sends bookmarks sends one a minute."""

_HEALTHY: Final = 60.0
"""Seconds for which a watch has to last to count as good; less than a silence, or a quiet node
behind a server without bookmarks would count as sick."""

_SHORT: Final = 1.0
"""Seconds; a server that ends watches sooner would be asked without a pause."""

_INITIAL: Final = 15.0
"""Seconds in which the collection has to come as a stream: a server that doesn't know of such
streams gives one whose beginning has no end."""

_PAGES: Final = 1000
_END: Final = "k8s.io/initial-events-end"

MapObject = Callable[[Mapping[str, Any]], T | None]
"""Takes what is needed from an object as it was sent; None leaves it out. Must take any JSON."""


class Handler(Protocol[T_contra]):
    """Takes what a reflector finds out. While a method runs, nothing further is read."""

    async def replaced(self, objects: Sequence[T_contra]) -> None:
        """Take the whole collection: what isn't in it is gone."""
        ...

    async def upserted(self, obj: T_contra) -> None:
        """Take an object that came or may have changed."""
        ...

    async def deleted(self, obj: T_contra) -> None:
        """Take an object that is gone, as it was last."""
        ...

    async def confirmed(self) -> None:
        """Note that the server was heard: nothing else has changed until now."""
        ...

    async def watch_failed(self, error: ApiError) -> None:
        """Note that the collection can't be followed now; said for each attempt that fails."""
        ...


class _ListMetadata(msgspec.Struct):
    version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    """A list whose objects are not parsed yet.

    All of them at once would be many times its size, and what is kept would hold on to most of it.
    """

    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


class Reflector(Generic[T]):
    """Follows one collection until cancelled.

    Args:
        api: session with the server.
        path: of the collection, such as `/api/v1/pods`.
        query: parameters that choose from it.
        map_object: what is kept of an object.
        handler: who is told.
        clock: for delays.
        rng: for the jitter of delays and the length of watches.
    """

    def __init__(
        self,
        api: KubeApi,
        path: str,
        query: Mapping[str, str],
        map_object: MapObject[T],
        handler: Handler[T],
        *,
        clock: Clock,
        rng: random.Random | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._query = dict(query)
        self._map_object = map_object
        self._handler = handler
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._list_watch = ListWatch()
        self._backoff = Backoff(0.8, 30.0, _HEALTHY, 1.0, self._rng)
        self._stream_opened_ns: int | None = None
        self._failures = 0

    async def run(self) -> NoReturn:
        """Follow the collection; never gives up. What the handler raises ends it."""
        while True:
            self._stream_opened_ns = None
            try:
                if self._list_watch.step is Step.LIST:
                    await self._list()
                else:
                    await self._watch()
            except ApiError as error:
                await self._failed(error)

    async def _failed(self, error: ApiError) -> None:
        lasted = 0.0
        if self._stream_opened_ns is not None:
            lasted = (self._clock.now().mono_ns - self._stream_opened_ns) / 1e9
        if lasted >= _SHORT:
            self._failures = 0
        self._failures += 1
        following = self._list_watch.complete
        if self._list_watch.failed(error):
            return
        # Streams break, servers are exchanged, versions expire: what works at the next attempt is
        # nobody's news.
        mending = following and (self._failures == 1 or not self._list_watch.complete)
        if not mending or error.status in {401, 403}:
            await self._handler.watch_failed(error)
        await self._clock.sleep(self._backoff.delay(lasted, error.retry_after))

    async def _list(self) -> None:
        objects: list[T] = []
        query = self._query | self._list_watch.parameters(0)
        page: dict[str, str] = {}
        for _ in range(_PAGES):
            try:
                body = await self._api.get(self._path, query | page)
            except ApiError as error:
                if not page or error.status != 410 or query.pop("limit", None) is None:
                    raise
                # The pages' common version is gone: from the start, and whole.
                objects, page = [], {}
                continue
            try:
                listed = msgspec.json.decode(body, type=_List)
                found = (
                    self._map_object(as_dict(orjson.loads(bytes(raw))))
                    for raw in listed.items or ()
                )
                objects += [kept for kept in found if kept is not None]
            except (msgspec.MsgspecError, UnicodeDecodeError, orjson.JSONDecodeError) as error:
                raise self._unexpected(body) from error
            metadata = listed.metadata
            if not metadata.token:
                self._completed(metadata.version)
                await self._handler.replaced(objects)
                return
            page = {"continue": metadata.token}
        told = f"{self._path}: the list has no end after {_PAGES} pages"
        raise ApiError(told, reason="endless list")

    async def _watch(self) -> None:
        """Read a stream until it ends; one that ends too soon is a failed one."""
        # A time of our own for each watch spreads the load of a cluster's nodes.
        query = self._query | self._list_watch.parameters(self._rng.randint(300, 600))
        async with self._api.watch(self._path, query, silence=_SILENCE) as lines:
            opened = self._clock.now()
            self._stream_opened_ns = opened.mono_ns
            if self._list_watch.complete:
                await self._first_event(lines)
            elif not await self._initial_events(lines):
                return
            async for sent in lines:
                await self._event(*self._parsed(sent))
        if opened.seconds_until(self._clock.now()) < _SHORT:
            told = f"{self._path}: the server ends each watch at once"
            raise ApiError(told, reason="short watches")

    async def _first_event(self, lines: AsyncIterator[bytes]) -> None:
        """Take the first event; until it comes, that the stream stays open confirms the copy."""
        reading = asyncio.ensure_future(anext(lines, None))
        try:
            # What the server has against our version it says at once.
            await asyncio.wait({reading}, timeout=_SHORT)
            if not reading.done():
                await self._handler.confirmed()
            if (sent := await reading) is not None:
                await self._event(*self._parsed(sent))
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _initial_events(self, lines: AsyncIterator[bytes]) -> bool:
        """Take in the collection; return whether it came to its end.

        It is put together aside and told of as a whole, so that a stream that breaks off, or an
        object that went while nobody listened, leaves no gap.
        """
        objects: dict[tuple[str, str], T] = {}
        try:
            async with asyncio.timeout(_INITIAL):
                async for sent in lines:
                    kind, found = self._parsed(sent)
                    metadata = as_dict(found.get("metadata"))
                    key = (as_text(metadata.get("namespace")), as_text(metadata.get("name")))
                    if kind == "BOOKMARK":
                        if as_text(as_dict(metadata.get("annotations")).get(_END)) == "true":
                            version = as_text(metadata.get("resourceVersion"))
                            break
                    elif kind == "DELETED":
                        objects.pop(key, None)
                    elif (
                        kind in {"ADDED", "MODIFIED"}
                        and (kept := self._map_object(found)) is not None
                    ):
                        objects[key] = kept
                else:
                    told = f"{self._path}: the stream ended before the collection was told"
                    raise ApiError(told, reason="short stream")
        except TimeoutError:
            self._list_watch.stream_unsupported()
            return False
        self._completed(version)
        await self._handler.replaced(tuple(objects.values()))
        return True

    async def _event(self, kind: str, found: Mapping[str, Any]) -> None:
        version = as_text(as_dict(found.get("metadata")).get("resourceVersion"))
        if kind in {"ADDED", "MODIFIED", "DELETED"}:
            kept = self._map_object(found)
            if kept is not None:
                await (self._handler.deleted if kind == "DELETED" else self._handler.upserted)(kept)
        # Only then: an event whose handling was cut off has to come again.
        self._failures = 0
        self._list_watch.note_version(version)
        await self._handler.confirmed()

    def _completed(self, version: str) -> None:
        self._list_watch.completed(version)
        self._failures = 0

    def _parsed(self, sent: bytes) -> tuple[str, Mapping[str, Any]]:
        """Return type and object of an event.

        Raises:
            ApiError: it is an error, or no event at all.
        """
        try:
            event = as_dict(orjson.loads(sent))
        except orjson.JSONDecodeError as error:
            raise self._unexpected(sent) from error
        kind, found = as_text(event.get("type")), event.get("object")
        if not kind or not isinstance(found, dict):
            raise self._unexpected(sent)
        if kind == "ERROR":
            told = status_error(found)
            raise ApiError(
                f"{self._path}: the stream brought {told}",
                status=told.status or 500,
                reason=told.reason,
                retry_after=told.retry_after,
            )
        return kind, found

    def _unexpected(self, sent: bytes) -> ApiError:
        shown = line(sent[:80].decode("utf-8", "replace"))
        return ApiError(
            f'{self._path}: the server sent what is no JSON of its API: "{shown}"; '
            "see that the address is an API server's and nothing in between answers for it",
            status=500,
            reason="no JSON of its API",
        )
