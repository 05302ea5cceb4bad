"""Limits the time of each request to an API server.

A server that accepts a connection and does not respond then fails the check that queries it, with a
fix for servers. Without this limit the check `check.deadline` would report it, with a general fix.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi

REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one request."""

OpenSession: TypeAlias = Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]


def with_timeout(open_session: OpenSession, seconds: float = REQUEST_TIMEOUT) -> OpenSession:
    """Return `open_session` with a time limit: a request that takes longer raises `ApiError`.

    Args:
        open_session: opens a session with an API server, given a kubeconfig.
        seconds: for one request.
    """

    @asynccontextmanager
    async def session(kubeconfig: Path | None) -> AsyncIterator[KubeApi]:
        async with open_session(kubeconfig) as api:
            yield TimeoutKubeApi(api, seconds)

    return session


class TimeoutKubeApi:
    """A `pipeline.component.contracts.KubeApi` with a time limit for each request.

    Args:
        api: makes the requests.
        seconds: for one request; for a stream, until it starts.
    """

    def __init__(self, api: KubeApi, seconds: float) -> None:
        self._api = api
        self._seconds = seconds

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of a response."""
        with self._timeout_as_error("GET", path):
            async with asyncio.timeout(self._seconds):
                return await self._api.get(path, query)

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Merge changes into an object and return the object."""
        with self._timeout_as_error("PATCH", path):
            async with asyncio.timeout(self._seconds):
                return await self._api.patch(path, changes)

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        """Create an object and return it."""
        with self._timeout_as_error("POST", path):
            async with asyncio.timeout(self._seconds):
                return await self._api.create(path, body)

    def watch(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream of lines."""
        return self._watch(path, query, silence)

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        stream = self._api.watch(path, query, silence=silence)
        with self._timeout_as_error("GET", path):
            async with asyncio.timeout(self._seconds):
                lines = await stream.__aenter__()
        try:
            yield lines
        finally:
            await stream.__aexit__(None, None, None)

    @contextmanager
    def _timeout_as_error(self, method: str, path: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            message = f"{method} {path}: no answer within {self._seconds:g} s"
            raise ApiError(message, reason="timeout") from error
