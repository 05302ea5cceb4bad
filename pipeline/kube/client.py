"""A session with one API server: requests and streams over the library's connections.

The one module that meets the exceptions of aiohttp and of the library's transport; what leaves it
is an `ApiError` that names the server, what was asked for, and the mend.
"""

import asyncio
import errno
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from pipeline.base.errors import ApiError, TransientError
from pipeline.base.safe_text import line, redact
from pipeline.base.version import VERSION
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.kube.api_errors import response_error
from pipeline.kube.client_library import library
from pipeline.kube.credentials import Access, Credentials
from pipeline.kube.line_splitter import Lines, LineTooLongError
from pipeline.kube.request import Request
from pipeline.net.proxies import ProxyError, proxy_for

_FRESH: Final = 60.0
"""Seconds for which credentials are used without looking again; a token is exchanged well before
the old one expires."""

_CONNECT: Final = 10.0
_ANSWER: Final = 60.0
_READ_TIMEOUT: Final = 30.0
_ERROR_BYTES: Final = 1 << 16
_READ_BYTES: Final = 2 << 20
"""Bytes that are read ahead: more than one object, which is at most 1.5 MiB in etcd."""
_LONGEST_LINE: Final = 16 << 20
_LONGEST_BODY: Final = 64 << 20
"""Bytes; a node's pods are some megabytes, one object in etcd at most 1.5."""

_PASSWORD: Final = re.compile(r"//[^/\s@]*@")
_HEADERS: Final = {"Accept": "application/json", "User-Agent": f"podgpu/{VERSION}"}
_BROKEN: Final = (aiohttp.ClientError, OSError, ValueError)
"""What a connection fails with. TimeoutError and ssl.SSLError are OSErrors."""


class Client:
    """Implements `pipeline.component.contracts.KubeApi`."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._threads = DaemonExecutor("kube")
        self._access: Access | None = None
        self._read_at = 0.0
        self._refused = False
        self._lock = asyncio.Lock()
        self._connection: _Connection | None = None

    async def start(self) -> None:
        """Read the credentials for the first time.

        Raises:
            TransientError: there are none.
        """
        await self._load()

    async def close(self) -> None:
        """End all connections."""
        self._threads.shutdown()
        if self._connection is not None:
            await self._connection.close_when_unused(now=True)

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of an answer."""
        return await self._whole(Request("GET", path, query))

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Merge changes into an object and return it."""
        return await self._whole(Request("PATCH", path, changes=changes))

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        """Create an object and return it."""
        return await self._whole(Request("POST", path, changes=body))

    async def _whole(self, request: Request) -> bytes:
        timeout = aiohttp.ClientTimeout(
            total=_ANSWER, connect=_CONNECT, sock_connect=_CONNECT, sock_read=_READ_TIMEOUT
        )
        async with self._answer(request, timeout) as response:
            try:
                return await _body(response, _LONGEST_BODY)
            except _BROKEN as error:
                raise self._error(request, error) from error

    def watch(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream of lines."""
        return self._watch(path, query, silence)

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_CONNECT, sock_connect=_CONNECT, sock_read=silence
        )
        request = Request("GET", path, query)
        async with self._answer(request, timeout) as response:
            yield self._lines(request, response)

    async def _lines(
        self, request: Request, response: aiohttp.ClientResponse
    ) -> AsyncIterator[bytes]:
        lines = Lines(_LONGEST_LINE)
        try:
            async for piece in response.content.iter_any():
                for found in lines.feed(piece):
                    yield found
        except LineTooLongError as error:
            told = f"sent an object of over {_LONGEST_LINE} bytes"
            raise self._error(request, told) from error
        except _BROKEN as error:
            raise self._error(request, error) from error
        if lines.partial:
            raise self._error(request, "ended the stream in the middle of an object")

    @asynccontextmanager
    async def _answer(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask; what might be mended by reading the credentials again is asked twice."""
        for again in (True, False):
            access, connection = await self._credentials_and_pool(request)
            async with connection:
                response = await self._ask(access, connection, request, timeout, again=again)
                if response is None:
                    continue
                try:
                    yield response
                finally:
                    # A stream that isn't read to its end can't serve another request.
                    response.close()
                return

    async def _ask(
        self,
        access: Access,
        connection: "_Connection",
        request: Request,
        timeout: aiohttp.ClientTimeout,
        *,
        again: bool,
    ) -> aiohttp.ClientResponse | None:
        """Return the answer, if its status is good.

        Args:
            access: whom to ask, and by which right.
            connection: over which connections.
            request: what to ask for.
            timeout: of the request.
            again: where credentials or certificates may be what is wrong, return None and see that
                they are read anew.
        """
        authorization = {"Authorization": access.authorization} if access.authorization else {}
        try:
            response: aiohttp.ClientResponse = await connection.rest.request(
                request.method,
                access.configuration.host + request.path,
                headers=_HEADERS | request.headers | authorization | connection.headers,
                query_params=list(request.query.items()),
                body=request.changes,
                _preload_content=False,
                _request_timeout=timeout,
            )
        except _BROKEN as error:
            if _is_tls_error(error):
                self._refused = True
                if again:
                    return None
            raise self._error(request, error) from error
        if request.changes is not None and response.history:
            # After 301 to 303 it was no PATCH any more, and an API server redirects none.
            response.close()
            told = "was redirected; give the address of the API server itself"
            raise self._error(request, told)
        if 200 <= response.status < 300:
            return response
        try:
            body = _concealed(await _body(response, _ERROR_BYTES, cut=True), access)
        except _BROKEN:
            body = b""
        finally:
            response.close()
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._refused = True
            if again:
                return None
        raise response_error(
            access.server,
            request,
            status=response.status,
            headers=response.headers,
            body=body,
            credentials=self._credentials.place,
        )

    async def _credentials_and_pool(self, request: Request) -> "tuple[Access, _Connection]":
        """Return credentials that are fresh, and connections that they are good for."""
        async with self._lock:
            access = await self._fresh()
            connection = self._connection
            if connection is None or connection.serves != access.connection:
                if connection is not None:
                    await connection.close_when_unused()
                try:
                    connection = self._connection = _Connection(access)
                except (OSError, ValueError) as error:
                    self._connection = None
                    raise self._error(request, error) from error
            return access, connection

    async def _fresh(self) -> Access:
        old, refused = self._access, self._refused
        if old and not refused and asyncio.get_running_loop().time() - self._read_at <= _FRESH:
            return old
        try:
            access = await self._load()
        except TransientError as error:
            # A folder whose link is being exchanged: what was read before may well be good.
            if old is None or refused:
                raise ApiError(str(error), reason="credentials") from error
            return old
        if refused:
            self._refused = False
            if self._connection is not None:
                await self._connection.close_when_unused()
                self._connection = None
        return access

    async def _load(self) -> Access:
        loop = asyncio.get_running_loop()
        begun, anew = loop.time(), self._refused
        self._access = await loop.run_in_executor(
            self._threads, lambda: self._credentials.load(reload=anew)
        )
        self._read_at = begun
        return self._access

    def _error(self, request: Request, error: BaseException | str) -> ApiError:
        server = self._access.server if self._access else "API server"
        reason = error if isinstance(error, str) else _reason(error)
        told = f"{server}: {request.method} {request.path}: {_describe(error)}"
        return ApiError(told, reason=reason)


class _Connection:
    """A pool of connections with the certificates it was made with; `async with` uses it.

    Its proxy is that of the kubeconfig, or else the one that the variables name, see
    `pipeline.net.proxies`.

    Attributes:
        headers: of each request, for a proxy.

    Raises:
        OSError: a certificate can't be read.
        ValueError: a variable names no proxy that can be used.
    """

    def __init__(self, access: Access) -> None:
        self.serves = access.connection
        self.headers: dict[str, str] = {}
        host = str(access.configuration.host)
        proxy = None if access.configuration.proxy else proxy_for(host, os.environ)
        self.rest: Any = library().rest(access.configuration)
        self._leave_environment()
        if proxy is not None:
            for_request, for_proxy = proxy.sent(host)
            self.headers.update(for_request)
            self.rest.proxy, self.rest.proxy_headers = proxy.url, for_proxy
        self._users = 0
        self._retired = False

    def _leave_environment(self) -> None:
        """Have a session that doesn't read proxies from the environment, nor ~/.netrc."""
        old: aiohttp.ClientSession = self.rest.pool_manager
        self.rest.pool_manager = aiohttp.ClientSession(
            connector=old.connector, read_bufsize=_READ_BYTES
        )
        old.detach()

    async def __aenter__(self) -> None:
        self._users += 1

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self._retired and not self._users:
            await self.rest.close()

    async def close_when_unused(self, *, now: bool = False) -> None:
        """Close the pool once nobody uses it any more, or at once."""
        self._retired = True
        if now or not self._users:
            await self.rest.close()


async def _body(response: aiohttp.ClientResponse, longest: int, *, cut: bool = False) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > longest:
            if cut:
                break
            raise ValueError(f"sent more than {longest} bytes")
    return b"".join(pieces)[:longest]


def _concealed(body: bytes, access: Access) -> bytes:
    """Return an answer without our own token, which a server may repeat that refuses it."""
    token = access.authorization.rpartition(" ")[2]
    return redact(body.decode("utf-8", "replace"), [token]).encode()


def _is_tls_error(error: BaseException) -> bool:
    """Whether TLS failed, at the start or by the other side's alert later."""
    return isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or isinstance(
        getattr(error, "os_error", error.__cause__), ssl.SSLError
    )


def _reason(error: BaseException) -> str:
    """Return what tells this fault from others: the texts of libraries may vary each time."""
    if _is_tls_error(error):
        return "TLS"
    cause = getattr(error, "os_error", None)
    code = errno.errorcode.get(getattr(cause or error, "errno", None) or 0, "")
    return f"{type(error).__name__} {code}".rstrip()


def _describe(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {_CONNECT:.0f} s; see that the address is right and reachable"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "fell silent"
    if _is_tls_error(error):
        return (
            f"TLS failed: {line(str(error))}; see that the certificates of server and client "
            "belong together and have not expired"
        )
    if isinstance(error, ProxyError):
        return str(error)
    # Whole addresses stand in it, that of a proxy with its password.
    text = _PASSWORD.sub("//", str(error))
    told = f"{type(error).__name__}: {line(text)}" if text else type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{told}; see that the server runs and its address is right"
    return told
