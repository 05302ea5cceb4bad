"""Keeps a copy of a collection up to date: lists it, watches it, and recovers from errors."""

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
from pipeline.kube.json_access import as_dict, as_text, parsed_object
from pipeline.kube.list_watch_state import ListWatchState

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_SILENCE_TIMEOUT: Final = 75.0
"""Seconds without data after which a watch fails. A server that sends bookmarks sends one each
minute."""

_HEALTHY: Final = 60.0
"""Seconds after which a watch counts as successful. It is less than `_SILENCE_TIMEOUT`: otherwise a
quiet node behind a server without bookmarks would count as failing."""

_MIN_WATCH: Final = 1.0
"""Seconds. If a watch ends sooner, podgpu waits before the next one, to spare the server."""

_INITIAL_TIMEOUT: Final = 15.0
"""Seconds in which a stream must deliver the collection. A server that does not support such
streams sends the objects, but never the event that ends the collection."""

_MAX_PAGES: Final = 1000
_END_ANNOTATION: Final = "k8s.io/initial-events-end"

MapObject = Callable[[Mapping[str, Any]], T | None]
"""Returns what is kept of a decoded object; None to ignore it. It must accept any JSON object."""


class Handler(Protocol[T_contra]):
    """Receives the changes of a collection. The reflector reads no further event during a call."""

    async def replaced(self, objects: Sequence[T_contra]) -> None:
        """Receive the whole collection. Objects that are not in it no longer exist."""
        ...

    async def upserted(self, obj: T_contra) -> None:
        """Receive an object that is new or may have changed."""
        ...

    async def deleted(self, obj: T_contra) -> None:
        """Receive an object that was deleted, in its last state."""
        ...

    async def confirmed(self) -> None:
        """Note that the server responded: the handler has received all changes known up to now."""
        ...

    async def watch_failed(self, error: ApiError) -> None:
        """Note that the collection cannot be listed or watched.

        Called after each failed attempt, except after the first failure of a running watch and
        after an expired version: the next attempt then usually succeeds.
        """
        ...


class _ListMetadata(msgspec.Struct):
    version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    """A list whose objects are not parsed yet.

    Parsing all objects at the same time needs many times the size of the list, and the parts that
    are kept of the objects would keep most of that memory in use.
    """

    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


class Reflector(Generic[T]):
    """Follows one collection until it is cancelled.

    Args:
        api: session with the server.
        path: path of the collection, such as `/api/v1/pods`.
        query: query parameters that select objects.
        map_object: returns what is kept of an object.
        handler: receives the changes.
        clock: clock for delays.
        rng: random numbers for the jitter of delays and for the length of watches.
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
        self._list_watch = ListWatchState()
        self._backoff = Backoff(0.8, 30.0, _HEALTHY, 1.0, self._rng)
        self._stream_opened_ns: int | None = None
        self._failures = 0

    async def run(self) -> NoReturn:
        """Follow the collection without end. Only an exception of the handler ends it."""
        while True:
            self._stream_opened_ns = None
            try:
                if self._list_watch.lists:
                    await self._list()
                else:
                    await self._watch()
            except ApiError as error:
                await self._failed(error)

    async def _failed(self, error: ApiError) -> None:
        lasted = 0.0
        if self._stream_opened_ns is not None:
            lasted = (self._clock.now().mono_ns - self._stream_opened_ns) / 1e9
        if lasted >= _MIN_WATCH:
            self._failures = 0
        self._failures += 1
        following = self._list_watch.complete
        if self._list_watch.failed(error):
            return
        # Streams break, servers are replaced, versions expire. A first failure of a running watch
        # is not reported, because the next attempt usually succeeds.
        recovering = following and (self._failures == 1 or not self._list_watch.complete)
        if not recovering or error.status in {401, 403}:
            await self._handler.watch_failed(error)
        await self._clock.sleep(self._backoff.delay(lasted, error.retry_after))

    async def _list(self) -> None:
        objects: list[T] = []
        query = self._query | self._list_watch.parameters(0)
        page: dict[str, str] = {}
        for _ in range(_MAX_PAGES):
            try:
                body = await self._api.get(self._path, query | page)
            except ApiError as error:
                if not page or error.status != 410 or query.pop("limit", None) is None:
                    raise
                # The version of the pages has expired: start again, without pages.
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
        message = f"{self._path}: the list has no end after {_MAX_PAGES} pages"
        raise ApiError(message, reason="endless list")

    async def _watch(self) -> None:
        """Read a watch or a stream until it ends. Raise an error if it ends within a second."""
        # A random length of each watch spreads the load of a cluster's nodes.
        query = self._query | self._list_watch.parameters(self._rng.randint(300, 600))
        async with self._api.watch(self._path, query, silence=_SILENCE_TIMEOUT) as lines:
            opened = self._clock.now()
            self._stream_opened_ns = opened.mono_ns
            if self._list_watch.complete:
                await self._first_event(lines)
            elif not await self._initial_events(lines):
                return
            async for sent in lines:
                await self._event(*self._parsed(sent))
        if opened.seconds_until(self._clock.now()) < _MIN_WATCH:
            message = f"{self._path}: the server closes each watch immediately"
            raise ApiError(message, reason="short watches")

    async def _first_event(self, lines: AsyncIterator[bytes]) -> None:
        """Process the first event. If none comes within a second, confirm the copy meanwhile."""
        reading = asyncio.ensure_future(anext(lines, None))
        try:
            # If the server rejects our version, it does so immediately.
            await asyncio.wait({reading}, timeout=_MIN_WATCH)
            if not reading.done():
                await self._handler.confirmed()
            if (sent := await reading) is not None:
                await self._event(*self._parsed(sent))
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _initial_events(self, lines: AsyncIterator[bytes]) -> bool:
        """Receive the collection; return False if the server does not support the stream.

        The handler gets the collection as a whole at the end. So a stream that breaks, or an object
        that was deleted in the meantime, leaves no gap.
        """
        objects: dict[tuple[str, str], T] = {}
        try:
            async with asyncio.timeout(_INITIAL_TIMEOUT):
                async for sent in lines:
                    kind, found = self._parsed(sent)
                    metadata = as_dict(found.get("metadata"))
                    key = (as_text(metadata.get("namespace")), as_text(metadata.get("name")))
                    if kind == "BOOKMARK":
                        if as_dict(metadata.get("annotations")).get(_END_ANNOTATION) == "true":
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
                    message = f"{self._path}: the stream ended before the collection was complete"
                    raise ApiError(message, reason="short stream")
        except TimeoutError:
            # The server does not support the stream, although it returned no error.
            self._list_watch.stream_supported = False
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
        # Only now: if the handler was interrupted, the event must come again.
        self._failures = 0
        self._list_watch.note_version(version)
        await self._handler.confirmed()

    def _completed(self, version: str) -> None:
        self._list_watch.completed(version)
        self._failures = 0

    def _parsed(self, sent: bytes) -> tuple[str, Mapping[str, Any]]:
        """Return type and object of an event.

        Raises:
            ApiError: the line is not an event, or is an event of type `ERROR`.
        """
        event = parsed_object(sent)
        kind, found = as_text(event.get("type")), event.get("object")
        if not kind or not isinstance(found, dict):
            raise self._unexpected(sent)
        if kind == "ERROR":
            reported = status_error(found)
            raise ApiError(
                f"{self._path}: the stream sent an error: {reported}",
                status=reported.status or 500,
                reason=reported.reason,
                retry_after=reported.retry_after,
            )
        return kind, found

    def _unexpected(self, sent: bytes) -> ApiError:
        shown = line(sent[:80].decode("utf-8", "replace"))
        return ApiError(
            f'{self._path}: the response is not JSON of the Kubernetes API: "{shown}"; '
            "check that the address is that of an API server and that no proxy responds instead",
            status=500,
            reason="no JSON of its API",
        )
