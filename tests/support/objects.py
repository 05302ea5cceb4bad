"""A fake API server in this process for single objects: read, and changed by merge patches."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from typing import Any

from pipeline.base.errors import ApiError
from tests.support.kube import Raw


class FakeObjects:
    """Implements `KubeApi` for `get` and `patch` of single objects.

    Attributes:
        objects: the objects by path. `put` and `annotate` change them, as other writers do.
        answers: the results of the next requests: an error, or None for success.
        requests: loop time, method, path and changes of each request.
        before: called with method and path before the response, so that a test can change the
            object during the request.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Raw] = {}
        self.answers: deque[ApiError | None] = deque()
        self.requests: list[tuple[float, str, str, Mapping[str, Any] | None]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self._version = 100

    def put(self, path: str, raw: Raw) -> None:
        """Create or replace an object."""
        self._version += 1
        raw = deepcopy(raw)
        raw.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        self.objects[path] = raw

    def annotate(self, path: str, **annotations: str | None) -> None:
        """Change annotations as another writer; None removes one."""
        self._merge(path, {"metadata": {"annotations": annotations}})

    def annotations(self, path: str) -> dict[str, str]:
        found: dict[str, str] = self.objects[path]["metadata"].get("annotations") or {}
        return found

    def patches(self) -> list[tuple[float, Mapping[str, Any]]]:
        """Return loop time and changes of all requested patches."""
        return [(at, changes) for at, _, _, changes in self.requests if changes is not None]

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        assert not query
        await self._record("GET", path, None)
        return json.dumps(self._found(path)).encode()

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        changes = json.loads(json.dumps(changes))
        await self._record("PATCH", path, changes)
        metadata = changes.get("metadata")
        expected = metadata if isinstance(metadata, dict) else {}
        has = self._found(path)["metadata"]
        for key, code, reason in (("resourceVersion", 409, "Conflict"), ("uid", 422, "Invalid")):
            if key in expected and expected[key] != has.get(key):
                raise ApiError(f"{path}: {code} {reason}: {key}", status=code, reason=reason)
        return json.dumps(self._merge(path, changes)).encode()

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        raise AssertionError(f"something is created in {path}")

    def watch(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"{path} is watched")

    async def _record(self, method: str, path: str, changes: Mapping[str, Any] | None) -> None:
        self.requests.append((asyncio.get_running_loop().time(), method, path, changes))
        await asyncio.sleep(0)
        self.before(method, path)
        if self.answers and (answer := self.answers.popleft()) is not None:
            raise answer

    def _found(self, path: str) -> Raw:
        if path not in self.objects:
            raise ApiError(f"GET {path} failed: 404", status=404, reason="NotFound")
        return self.objects[path]

    def _merge(self, path: str, changes: Mapping[str, Any]) -> Raw:
        made: Raw = merged(self._found(path), changes)
        if made != self.objects[path]:
            self._version += 1
            made["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = made
        return made


class SlowObjects(FakeObjects):
    """Objects with slow responses, and with lost responses or changes.

    Attributes:
        takes: seconds before each response.
        losing: the number of next changes that are made but whose responses are lost.
        dropping: the number of next changes that are answered with success but not made.
        most: the highest number of simultaneous requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.takes = 0.0
        self.losing = 0
        self.dropping = 0
        self.most = 0
        self._open = 0

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        return await self._slowly(super().get(path, query))

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        made = {"metadata": {}} if (dropped := self.dropping > 0) else changes
        self.dropping -= dropped
        body = await self._slowly(super().patch(path, made))
        if self.losing:
            self.losing -= 1
            raise ApiError("connection lost")
        return body

    async def _slowly(self, request: Awaitable[bytes]) -> bytes:
        self._open += 1
        self.most = max(self.most, self._open)
        try:
            body = await request
            await asyncio.sleep(self.takes)
        finally:
            self._open -= 1
        return body


def merged(target: Any, changes: Any) -> Any:
    """Return a JSON value with a merge patch (RFC 7386) applied."""
    if not isinstance(changes, Mapping):
        return changes
    made = dict(target) if isinstance(target, Mapping) else {}
    for key, value in changes.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made
