"""GET requests to an HTTP server on a Unix socket, with limits on time and size.

It imports aiohttp, which takes 10 MB and 0.1 s: import this module only where it is needed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from pipeline.base.errors import ResponseError, TransientError
from pipeline.base.safe_text import line
from pipeline.net.http_get import BROKEN, body_of, describe_error, new_session

_ORIGIN: Final = "http://localhost"  # the server ignores the name


class _NotFoundError(ResponseError):
    """The server has no such object."""


class UnixHttp:
    """A client of one server. Use it as an asynchronous context manager.

    Args:
        socket: path of the socket.
        timeout: seconds for one request and its complete response, and for the start of a stream.
        most: maximum length of a response, in bytes.
    """

    def __init__(self, socket: Path, *, timeout: float, most: int) -> None:
        self._socket = socket
        self._timeout = timeout
        self._most = most

    async def __aenter__(self) -> Self:
        self._session = new_session(self._timeout, aiohttp.UnixConnector(path=str(self._socket)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def get(self, path: str) -> bytes:
        """Return the body of a response.

        Args:
            path: path and query, as they are sent.

        Raises:
            ResponseError: the server refused the request, or its response is too long.
            TransientError: the server cannot be reached, or its response is too slow.
                The texts name the socket.
        """
        async with self._response(path, self._timeout) as response:
            if len(body := await body_of(response, self._most)) > self._most:
                raise ResponseError(
                    f"{self._socket}: {path} is larger than {self._most} bytes; podgpu ignores it"
                )
            return body

    async def find(self, path: str) -> bytes | None:
        """Return the body of a response; None if the server has no such object (404).

        Raises:
            ResponseError, TransientError: as `get`.
        """
        try:
            return await self.get(path)
        except _NotFoundError:
            return None

    @asynccontextmanager
    async def lines(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of lines, without their ends. It ends when the server closes it.

        A line that is longer than the maximum length of a response is empty.

        Args:
            path: path and query, as they are sent.

        Raises:
            TransientError: on entry, as `get`; in the iteration, the connection broke.
        """
        async with self._response(path, None) as response:
            yield _lines(response, self._most)

    @asynccontextmanager
    async def _response(
        self, path: str, total: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; errors of the request and of reading the response are translated."""
        timeout = aiohttp.ClientTimeout(total=total)
        try:
            # The header of a stream has a time limit, too, but its body has none.
            async with asyncio.timeout(self._timeout) as limit:
                response = await self._session.get(
                    _ORIGIN + path, timeout=timeout, allow_redirects=False
                )
                if total is None:
                    limit.reschedule(None)
            async with response:
                if response.status != HTTPStatus.OK:
                    raise await self._refusal(path, response)
                yield response
        except TimeoutError:
            raise TransientError(
                f"{self._socket}: no complete response within {self._timeout:g} s; check the log "
                "of the daemon that listens on it"
            ) from None
        except BROKEN as error:
            raise TransientError(f"{self._socket}: {_describe(error)}") from error

    async def _refusal(self, path: str, response: aiohttp.ClientResponse) -> ResponseError:
        detail = line((await body_of(response, 1 << 10)).decode("utf-8", "replace"), 200)
        text = f"{self._socket}: {path} answered {response.status}: {detail}"
        is_missing = response.status == HTTPStatus.NOT_FOUND
        return _NotFoundError(text) if is_missing else ResponseError(text)


def _describe(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = line(error.os_error.strerror or str(error.os_error)).lower()
        return (
            f"{reason}; check that the daemon runs, that its socket is mounted, and who may use it"
        )
    return describe_error(error)


async def _lines(response: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    rest = bytearray()
    too_long = False
    async for piece in response.content.iter_any():
        *ended, last = piece.split(b"\n")
        for part in ended:
            rest += part
            yield b"" if too_long or len(rest) > most else bytes(rest)
            rest.clear()
            too_long = False
        rest += last
        if len(rest) > most:
            rest.clear()
            too_long = True
