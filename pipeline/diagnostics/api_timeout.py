"""A session with an API server whose every answer is waited for so long and no longer.

A server that takes a connection and says nothing is a finding of the check that asks it, with the
mend for servers; it is no examination that comes to no end, whose mend would be any.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi

ANSWER: Final = 10.0
"""Seconds for one request."""

Join: TypeAlias = Callable[[Path | None], AbstractAsyncContextManager[KubeApi]]


def with_timeout(join: Join, seconds: float = ANSWER) -> Join:
    """Return the same as `join` but for what doesn't answer in time: that is an `ApiError`.

    Args:
        join: joins a session.
        seconds: for one request.
    """

    @asynccontextmanager
    async def joined(kubeconfig: Path | None) -> AsyncIterator[KubeApi]:
        async with join(kubeconfig) as api:
            yield TimeoutKubeApi(api, seconds)

    return joined


class TimeoutKubeApi:
    """Implements `pipeline.component.contracts.KubeApi`.

    Args:
        api: who is asked.
        seconds: for one request; for a stream, until it begins.
    """

    def __init__(self, api: KubeApi, seconds: float) -> None:
        self._api = api
        self._seconds = seconds

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of an answer."""
        with self._timeout_as_error("GET", path):
            async with asyncio.timeout(self._seconds):
                return await self._api.get(path, query)

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Merge changes into an object and return it."""
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
            told = f"{method} {path}: no answer within {self._seconds:g} s"
            raise ApiError(told, reason="timeout") from error
