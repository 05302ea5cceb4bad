"""Fake API servers: in this process for virtual time, and over HTTP on loopback."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pipeline.base.errors import ApiError
from pipeline.kube.api_errors import status_error

Raw = dict[str, Any]
END = {"k8s.io/initial-events-end": "true"}


def status(code: int, reason: str, message: str = "", **details: object) -> Raw:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def named(name: str, namespace: str = "ns", **more: Any) -> Raw:
    return {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"}, **more}


class RefusedError(Exception):
    def __init__(self, body: Raw) -> None:
        super().__init__(body["message"])
        self.body = body


class Collection:
    """Objects with versions; each change gets a version, and `compact` forgets old versions."""

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 100
        self.objects: dict[tuple[str, str], Raw] = {}
        self.log: list[tuple[int, str, Raw]] = []
        self.streams = True
        self.ignores_streams = False
        self._changed = asyncio.Event()

    def put(self, raw: Raw) -> None:
        metadata = raw["metadata"]
        key = metadata.get("namespace", ""), metadata["name"]
        kind = "MODIFIED" if key in self.objects else "ADDED"
        before = self.objects.get(key)
        if before is not None and before["metadata"].get("uid") != metadata.get("uid"):
            self.delete(*key)
            kind = "ADDED"
        self.objects[key] = self._log(kind, raw)

    def delete(self, namespace: str, name: str) -> None:
        self._log("DELETED", self.objects.pop((namespace, name)))

    def bookmark(self) -> None:
        self._log("BOOKMARK", {"metadata": {}})

    def error(self, body: Raw) -> None:
        self.log.append((self.version, "ERROR", body))
        self._wake()

    def compact(self) -> None:
        self.version += 1
        self.oldest = self.version
        self.log.clear()
        self._wake()

    def _log(self, kind: str, raw: Raw) -> Raw:
        self.version += 1
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}}
        self.log.append((self.version, kind, raw))
        self._wake()
        return raw

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def listed(self, query: Mapping[str, str]) -> Raw:
        objects = list(self.objects.values())
        limit, start = int(query.get("limit", "0")), int(query.get("continue", "0"))
        version = query.get("resourceVersion", "0")
        if int(version) > self.version:
            raise RefusedError(status(504, "Timeout", f"Too large resource version: {version}"))
        page = objects[start : start + limit] if limit else objects
        more = str(start + limit) if limit and start + limit < len(objects) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return {"kind": "List", "metadata": metadata, "items": page}

    async def watched(self, query: Mapping[str, str]) -> AsyncIterator[Raw]:
        position = int(query.get("resourceVersion", "0") or 0)
        if position > self.version:
            raise RefusedError(status(504, "Timeout", f"Too large resource version: {position}"))
        whole = query.get("sendInitialEvents") == "true" and not self.ignores_streams
        if whole and not self.streams:
            raise RefusedError(
                status(422, "Invalid", "sendInitialEvents is forbidden: feature is disabled")
            )
        if whole or position == 0:
            # Changes during this loop follow after it.
            position = self.version
            for raw in list(self.objects.values()):
                yield {"type": "ADDED", "object": raw}
        elif position < self.oldest:
            yield {"type": "ERROR", "object": status(410, "Expired", "too old resource version")}
            return
        if whole:
            metadata = {"resourceVersion": str(position), "annotations": END}
            yield {"type": "BOOKMARK", "object": {"metadata": metadata}}
        sent = next((i for i, (at, *_) in enumerate(self.log) if at > position), len(self.log))
        log = self.log
        while True:
            if position < self.oldest:
                body = status(410, "Expired", "too old resource version")
                yield {"type": "ERROR", "object": body}
                return
            while sent < len(log):
                position, kind, raw = log[sent]
                sent += 1
                yield {"type": kind, "object": raw}
            await self._changed.wait()


class FakeApi:
    """Implements `KubeApi` in this process.

    Attributes:
        answers: the results of the next requests: an error, or None for success.
        cut: ends the open streams.
    """

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.answers: deque[ApiError | None] = deque()
        self.requests: list[tuple[float, str, dict[str, str]]] = []
        self._cuts: set[asyncio.Future[ApiError | None]] = set()

    def kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.requests]

    def cut(self, error: ApiError | None = None) -> None:
        """End all open streams: normally, or with an error."""
        for cut in self._cuts:
            if not cut.done():
                cut.set_result(error)

    def _record(self, kind: str, query: Mapping[str, str]) -> None:
        now = asyncio.get_running_loop().time()
        self.requests.append((now, kind, dict(query)))
        if self.answers and (answer := self.answers.popleft()) is not None:
            raise answer

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        await asyncio.sleep(0)
        self._record("list", query)
        try:
            return json.dumps(self.collection.listed(query)).encode()
        except RefusedError as refused:
            raise status_error(refused.body) from refused

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        raise AssertionError(f"{path} is changed")

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        raise AssertionError(f"something is created in {path}")

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await asyncio.sleep(0)
        self._record("stream" if "sendInitialEvents" in query else "watch", query)
        events = self.collection.watched(query)
        try:
            first = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if first.done() and isinstance(error := first.exception(), RefusedError):
                raise status_error(error.body)
            lines = self._lines(events, first, silence)
            yield lines
            await lines.aclose()
        finally:
            first.cancel()
            await asyncio.wait([first])
            await events.aclose()  # type: ignore[attr-defined]

    async def _lines(
        self, events: AsyncIterator[Raw], first: asyncio.Future[Raw], silence: float
    ) -> Any:
        cut: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        self._cuts.add(cut)
        waiting = first
        try:
            while True:
                either: set[asyncio.Future[Any]] = {cut, waiting}
                await asyncio.wait(either, timeout=silence, return_when=asyncio.FIRST_COMPLETED)
                if cut.done():
                    if (error := cut.result()) is not None:
                        raise error
                    return
                if not waiting.done():
                    raise ApiError("stopped responding")
                try:
                    yield json.dumps(waiting.result()).encode()
                except StopAsyncIteration:
                    return
                waiting = asyncio.ensure_future(anext(events))
        finally:
            self._cuts.discard(cut)
            waiting.cancel()
            await asyncio.wait([waiting])


class ApiServer:
    """Serves collections over HTTP.

    Attributes:
        paths: collections by path.
        refusals: Status objects by path, returned instead of the collection.
        forbidden: verbs and paths that RBAC refuses, such as ("watch", "/api/v1/pods").
        unallowed: verbs and resources that access reviews deny.
        created: paths and bodies of all POST requests, usually access reviews.
        tokens: the accepted tokens; if empty, all.
    """

    def __init__(self, paths: dict[str, Collection]) -> None:
        self.paths = paths
        self.refusals: dict[str, Raw] = {}
        self.forbidden: set[tuple[str, str]] = set()
        self.unallowed: set[tuple[str, str]] = set()
        self.created: list[tuple[str, Raw]] = []
        self.tokens: set[str] = set()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def serving(self, **options: Any) -> AsyncIterator["ApiServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, **options)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.hang_up()
            await server.wait_closed()
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def kubeconfig(self, path: Path, token: str = "sesame") -> Path:  # noqa: S107
        path.write_text(
            json.dumps(
                {
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [
                        {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
                    ],
                    "users": [{"name": "u", "user": {"token": token}}],
                }
            )
        )
        return path

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("POST "):
                size = int(head.lower().partition("content-length:")[2].split()[0])
                self._create(head.split()[1], json.loads(await reader.readexactly(size)), writer)
                return
            await self._answer(head, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _create(self, path: str, body: Raw, writer: asyncio.StreamWriter) -> None:
        self.created.append((path, body))
        if ("create", path) in self.forbidden:
            self._send(writer, status(403, "Forbidden", "create is forbidden"))
            return
        requested = body["spec"]["resourceAttributes"]
        allowed = (requested["verb"], requested["resource"]) not in self.unallowed
        self._send(writer, {**body, "status": {"allowed": allowed}})

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(head.split()[1])
        query = dict(parse_qsl(url.query))
        self.requests.append((url.path, query))
        token = head.partition("Bearer ")[2].partition("\r\n")[0]
        if self.tokens and token not in self.tokens:
            self._send(writer, status(401, "Unauthorized", "Unauthorized"))
            return
        collection = self.paths.get(url.path)
        verb = "watch" if query.get("watch") == "true" else "list"
        if (verb, url.path) in self.forbidden:
            self._send(writer, status(403, "Forbidden", f"{verb} is forbidden"))
            return
        if collection is None or url.path in self.refusals:
            body = self.refusals.get(url.path, status(404, "NotFound", "no such resource"))
            self._send(writer, body)
            return
        try:
            if "watch" not in query:
                self._send(writer, collection.listed(query))
                return
            events = collection.watched(query)
            event = await anext(events) if "sendInitialEvents" in query else None
        except RefusedError as refused:
            self._send(writer, refused.body)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        if event is not None:
            writer.write(json.dumps(event).encode() + b"\n")
        async for event in events:
            writer.write(json.dumps(event).encode() + b"\n")
            await writer.drain()

    def _send(self, writer: asyncio.StreamWriter, content: Raw) -> None:
        body = json.dumps(content).encode()
        code = content["code"] if content["kind"] == "Status" else 200
        # One response for each connection; without this header a client would reuse it.
        head = f"HTTP/1.1 {code} X\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)


class ThreadedApiServer:
    """An API server in a separate thread, for tests that have no running event loop."""

    def __init__(self, make: Callable[[], ApiServer], live: Callable[[ApiServer], None]) -> None:
        self._make, self._live = make, live
        self._ready = threading.Event()
        self.server: ApiServer
        threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True).start()
        self._ready.wait()

    async def _run(self) -> None:
        self.server = self._make()
        async with self.server.serving():
            self._ready.set()
            while True:
                await asyncio.sleep(0.05)
                self._live(self.server)
