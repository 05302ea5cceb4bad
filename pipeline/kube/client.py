"""A session with one API server: requests and streams.

Only this module handles exceptions of aiohttp for API servers. It raises `ApiError` instead, which
names the server, the request and the fix.
"""

import asyncio
import errno
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from aiohttp.http_exceptions import LineTooLong

from pipeline.base.errors import ApiError, TransientError
from pipeline.base.safe_text import line, redact
from pipeline.base.version import VERSION
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.kube.api_errors import response_error
from pipeline.kube.api_request import TIMEOUT, ApiRequest
from pipeline.kube.credentials import Access, Credentials
from pipeline.net.http_get import body_of
from pipeline.net.proxies import ProxyError, proxy_for

_MAX_CREDENTIAL_AGE: Final = 60.0
"""Maximum age of credentials in seconds; then they are read again. The kubelet replaces a token
well before the old one expires."""

_CONNECT_TIMEOUT: Final = 10.0
_READ_TIMEOUT: Final = 30.0
_ERROR_BYTES: Final = 1 << 16
_MAX_LINE_BYTES: Final = 16 << 20
_READ_BYTES: Final = _MAX_LINE_BYTES // 2
"""Size of the read buffer in bytes. aiohttp reads lines of up to twice that size."""
_MAX_BODY_BYTES: Final = 64 << 20
"""Maximum length of a response. The pods of a node have some megabytes, one object at most 1.5."""

_PASSWORD: Final = re.compile(r"//[^/\s@]*@")
_HEADERS: Final = {"Accept": "application/json", "User-Agent": f"podgpu/{VERSION}"}
_BROKEN: Final = (aiohttp.ClientError, OSError, ValueError)
"""Errors of a connection. TimeoutError and ssl.SSLError are OSErrors."""


class Client:
    """Implements `pipeline.component.contracts.KubeApi`.

    Args:
        credentials: where the address and the credentials of the server come from.
        timeout: seconds for one request; a stream is not limited.
    """

    def __init__(self, credentials: Credentials, timeout: float = TIMEOUT) -> None:
        self._credentials = credentials
        self._timeout = timeout
        self._threads = DaemonExecutor("kube")
        self._access: Access | None = None
        self._read_at = 0.0
        self._refused = False
        self._lock = asyncio.Lock()
        self._connection: _Connection | None = None

    async def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown()
        if self._connection is not None:
            await self._connection.close_when_unused(now=True)

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of a response."""
        return await self._response_body(ApiRequest("GET", path, query))

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Merge changes into an object and return the object."""
        return await self._response_body(ApiRequest("PATCH", path, changes=changes))

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        """Create an object and return it."""
        return await self._response_body(ApiRequest("POST", path, changes=body))

    async def _response_body(self, request: ApiRequest) -> bytes:
        timeout = aiohttp.ClientTimeout(
            total=self._timeout,
            connect=_CONNECT_TIMEOUT,
            sock_connect=_CONNECT_TIMEOUT,
            sock_read=_READ_TIMEOUT,
        )
        async with self._response(request, timeout) as response:
            try:
                body = await body_of(response, _MAX_BODY_BYTES)
            except _BROKEN as error:
                raise self._error(request, error) from error
            if len(body) > _MAX_BODY_BYTES:
                raise self._error(request, f"sent more than {_MAX_BODY_BYTES} bytes")
            return body

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of lines."""
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_CONNECT_TIMEOUT, sock_connect=_CONNECT_TIMEOUT, sock_read=silence
        )
        request = ApiRequest("GET", path, query)
        async with self._response(request, timeout) as response:
            yield self._lines(request, response)

    async def _lines(
        self, request: ApiRequest, response: aiohttp.ClientResponse
    ) -> AsyncIterator[bytes]:
        try:
            async for sent in response.content:
                if not sent.endswith(b"\n"):
                    raise self._error(request, "ended the stream in the middle of an object")
                if not sent.isspace():
                    yield sent.rstrip(b"\n")
        except (ValueError, LineTooLong) as error:  # the latter since aiohttp 3.14
            message = f"sent an object of over {_MAX_LINE_BYTES} bytes"
            raise self._error(request, message) from error
        except _BROKEN as error:
            raise self._error(request, error) from error

    @asynccontextmanager
    async def _response(
        self, request: ApiRequest, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request. If other credentials may help, read them again and repeat it once."""
        for again in (True, False):
            access, connection = await self._credentials_and_pool(request)
            async with connection:
                response = await self._send(access, connection, request, timeout, again=again)
                if response is None:
                    continue
                try:
                    yield response
                finally:
                    # If the stream is not read to its end, the connection cannot be used again.
                    response.close()
                return

    async def _send(
        self,
        access: Access,
        connection: "_Connection",
        request: ApiRequest,
        timeout: aiohttp.ClientTimeout,
        *,
        again: bool,
    ) -> aiohttp.ClientResponse | None:
        """Return the response if its status is 2xx; None to repeat the request.

        Args:
            access: address and credentials of the server.
            connection: the pool of connections.
            request: the request.
            timeout: timeouts of the request.
            again: whether to return None if credentials or certificates may be the cause of an
                error. They are then read again.

        Raises:
            ApiError: the server refused the request or could not be reached.
        """
        authorization = {"Authorization": access.authorization} if access.authorization else {}
        try:
            response = await connection.session.request(
                request.method,
                access.host + request.path + (f"?{urlencode(request.query)}" * bool(request.query)),
                headers=_HEADERS | request.headers | authorization | connection.headers,
                data=None if request.changes is None else json.dumps(request.changes),
                timeout=timeout,
                **connection.options,
            )
        except _BROKEN as error:
            if _is_tls_error(error):
                self._refused = True
                if again:
                    return None
            raise self._error(request, error) from error
        if request.changes is not None and response.history:
            # After a 301 to 303 aiohttp sends a GET; an API server never redirects.
            response.close()
            message = "was redirected; set the address of the API server itself"
            raise self._error(request, message)
        if 200 <= response.status < 300:
            return response
        try:
            body = _without_token(await body_of(response, _ERROR_BYTES), access)
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

    async def _credentials_and_pool(self, request: ApiRequest) -> "tuple[Access, _Connection]":
        """Return credentials that are not too old, and a pool of connections that uses them."""
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
        if (
            old
            and not refused
            and asyncio.get_running_loop().time() - self._read_at <= _MAX_CREDENTIAL_AGE
        ):
            return old
        try:
            access = await self.load()
        except TransientError as error:
            # The folder's link may just be replaced; the previous credentials are probably valid.
            if old is None or refused:
                raise ApiError(str(error), reason="credentials") from error
            return old
        if refused:
            self._refused = False
            if self._connection is not None:
                await self._connection.close_when_unused()
                self._connection = None
        return access

    async def load(self) -> Access:
        """Read the credentials.

        Raises:
            TransientError: there are no usable credentials.
        """
        loop = asyncio.get_running_loop()
        started, reload = loop.time(), self._refused
        self._access = await loop.run_in_executor(
            self._threads, lambda: self._credentials.load(reload=reload)
        )
        self._read_at = started
        return self._access

    def _error(self, request: ApiRequest, error: BaseException | str) -> ApiError:
        server = self._access.server if self._access else "API server"
        reason = error if isinstance(error, str) else _reason(error)
        message = f"{server}: {request.method} {request.path}: {_describe(error, self._timeout)}"
        return ApiError(message, reason=reason)


class _Connection:
    """A pool of connections with the certificates at its creation; `async with` counts its users.

    Its proxy is that of the kubeconfig, or else that of the environment variables; see
    `pipeline.net.proxies`.

    Attributes:
        session: sends the requests. It reads neither proxies from the environment nor ~/.netrc.
        headers: additional headers of each request, for a proxy.
        options: further arguments of each request.

    Raises:
        OSError: a certificate cannot be read.
        ValueError: an environment variable contains an invalid proxy.
    """

    def __init__(self, access: Access) -> None:
        self.serves = access.connection
        self.headers: dict[str, str] = {}
        self.options: dict[str, Any] = {"server_hostname": access.tls_server_name}
        if access.proxy:
            self.options["proxy"] = access.proxy
        elif proxy := proxy_for(access.host, os.environ):
            for_request, for_proxy = proxy.sent(access.host)
            self.headers |= for_request
            self.options |= {"proxy": proxy.url, "proxy_headers": for_proxy}
        context = ssl.create_default_context(cafile=access.ssl_ca_cert)
        if access.cert_file:
            context.load_cert_chain(access.cert_file, access.key_file)
        if not access.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connector = aiohttp.TCPConnector(ssl=context)
        self.session = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_BYTES)
        self._users = 0
        self._retired = False

    async def __aenter__(self) -> None:
        self._users += 1

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self._retired and not self._users:
            await self.session.close()

    async def close_when_unused(self, *, now: bool = False) -> None:
        """Close the pool when it has no users; with `now`, immediately."""
        self._retired = True
        if now or not self._users:
            await self.session.close()


def _without_token(body: bytes, access: Access) -> bytes:
    """Return a response's body without podgpu's token, which a server may repeat in an error."""
    token = access.authorization.rpartition(" ")[2]
    return redact(body.decode("utf-8", "replace"), [token]).encode()


def _is_tls_error(error: BaseException) -> bool:
    """Return whether TLS failed, in the handshake or later by an alert of the server."""
    return isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or isinstance(
        getattr(error, "os_error", error.__cause__), ssl.SSLError
    )


def _reason(error: BaseException) -> str:
    """Return a constant reason for an error, because the texts of libraries vary."""
    if _is_tls_error(error):
        return "TLS"
    cause = getattr(error, "os_error", None)
    code = errno.errorcode.get(getattr(cause or error, "errno", None) or 0, "")
    return f"{type(error).__name__} {code}".rstrip()


def _describe(error: BaseException | str, timeout: float) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return (
            f"no connection within {_CONNECT_TIMEOUT:.0f} s; check that the address is correct and "
            "reachable"
        )
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "stopped responding"
    if type(error) is TimeoutError:
        return f"no response within {timeout:g} s"
    if _is_tls_error(error):
        return (
            f"TLS failed: {line(str(error))}; check that the certificates of server and client "
            "match and have not expired"
        )
    if isinstance(error, ProxyError):
        return str(error)
    # The text contains addresses; that of a proxy may contain its password.
    text = _PASSWORD.sub("//", str(error))
    shown = f"{type(error).__name__}: {line(text)}" if text else type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{shown}; check that the server runs and that its address is correct"
    return shown
