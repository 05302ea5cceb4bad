"""Posts messages to one URL over HTTP, with limits on time and size.

Like `pipeline.net.http_get` it imports aiohttp: import this module only where it is needed.
"""

import io
import os
import re
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import aiohttp

from pipeline.base.safe_text import line
from pipeline.net.http_get import BROKEN, describe_error, new_session, request_options
from pipeline.net.proxies import Proxy, ProxyError, proxy_for

Reason: TypeAlias = Literal["timeout", "tls", "unreachable", "proxy", "broken"]
"""Why there is no response.

* `unreachable`: the server accepts no connection, or its name cannot be resolved
* `proxy`: a proxy cannot be used or reached, or it refused the request
* `broken`: the connection ended before the response was complete, or the response is not HTTP
"""

# Load balancers close connections that are idle for a minute.
_IDLE_SECONDS: Final = 30.0
_HTTP2: Final = re.compile(r"status line.*\\x00\\x00.{1,4}\\x04\\x00", re.DOTALL)
"""The library's error for a server that begins with an HTTP/2 SETTINGS frame (RFC 9113, 6.5)."""
_ZLIB_FORMATS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""Values for zlib by content encoding; 47 detects the format."""


class PostError(Exception):
    """There is no response. The text says what failed, and how to fix it if that is known.

    Attributes:
        reason: kind of the failure, as a value for a label.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of the server.

    Attributes:
        status: HTTP status.
        headers: headers with names in lower case; of several headers of one name, the first.
        body: the decompressed body; empty if there is a `fault`.
        fault: why the body could not be read, as text for users; empty if it was read.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    fault: str = ""


class Poster:
    """Posts messages to one URL. Keeps the connection for the next message.

    The server's name is resolved for each new connection. Redirects are not followed. Environment
    variables set the proxy, see `pipeline.net.proxies`. Create this in a running event loop.

    Args:
        url: URL without user and password.
        timeout: seconds for one message and its response.
        most: maximum length of a response's body, decompressed, in bytes.
        context: verifies the server; None for the certificates of the system.
        server_name: the name in the server's certificate; empty for the name in the URL.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        most: int,
        context: ssl.SSLContext | None = None,
        server_name: str = "",
    ) -> None:
        self._url = url
        # The query may be a secret.
        self._shown_url = url.partition("?")[0]
        self._timeout = timeout
        self._most = most
        self._context = context
        self._server_name = server_name or None
        self._uses_tls = url.lower().startswith("https:")
        self._proxy: Proxy | None = None
        connector = aiohttp.TCPConnector(keepalive_timeout=_IDLE_SECONDS, use_dns_cache=False)
        self._session = new_session(timeout, connector)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post a message and return the response, with any status.

        Args:
            body: body of the request.
            headers: headers of the request, including User-Agent.

        Raises:
            PostError: there is no response.
        """
        try:
            # The library's own proxy support also reads ~/.netrc.
            self._proxy = proxy_for(self._url, os.environ)
        except ProxyError as error:
            raise PostError("proxy", f"{self._shown_url}: {error}") from None
        try:
            async with self._session.post(
                self._url,
                # A large bytes object would be written in one piece.
                data=io.BytesIO(body),
                server_hostname=self._server_name,
                **request_options(self._url, headers, self._context, self._proxy),
            ) as response:
                content, fault = await self._body(response)
                if fault:
                    # The rest is not read.
                    response.close()
                lowered: dict[str, str] = {}
                for name, value in response.headers.items():
                    lowered.setdefault(name.lower(), value)
                return Answer(response.status, lowered, content, fault)
        except TimeoutError as error:
            raise PostError(
                "timeout",
                f"{self._shown_url}: no complete response within {self._timeout:g} s"
                f"{self._proxy_text}; check the address, and that the server is reachable and not "
                "overloaded",
            ) from error
        except BROKEN as error:
            reason = _reason(error, self._proxy)
            raise PostError(
                reason, f"{self._shown_url}: {self._post_error(error, reason)}"
            ) from error

    @property
    def _proxy_text(self) -> str:
        return f" through the proxy in {self._proxy.variable}" if self._proxy else ""

    def _post_error(self, error: Exception, reason: Reason) -> str:
        if _is_certificate_alert(error):
            return (
                f"TLS failed: {line(str(error))}; the server requires a client certificate, or "
                "refuses podgpu's: check cert_file and key_file"
            )
        if self._proxy is not None and reason == "proxy":
            return _describe_proxy_error(error, self._proxy)
        if isinstance(error, aiohttp.ClientResponseError) and _HTTP2.search(error.message):
            return "the server responds in HTTP/2 only, as a gRPC port does; set protocol: grpc"
        text = describe_error(error)
        if reason == "broken" and self._uses_tls:
            text += "; a server that refuses the client certificate may do that: check cert_file"
        elif isinstance(error, aiohttp.ServerDisconnectedError):
            text += "; a server that requires TLS may do that: then write https"
        return f"{text}; the request went{self._proxy_text}" if self._proxy else text

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[bytes, str]:
        """Return the body and an empty text, or no body and why it cannot be read."""
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", *_ZLIB_FORMATS):
            shown = line(encoding, 40)
            return b"", f"a response with encoding {shown}, which podgpu did not request"
        decompressor = None
        if encoding in _ZLIB_FORMATS:
            decompressor = zlib.decompressobj(_ZLIB_FORMATS[encoding])
        body = bytearray()
        async for piece in response.content.iter_any():
            try:
                # One byte more than the limit shows that the body is too long.
                room = self._most + 1 - len(body)
                body += decompressor.decompress(piece, room) if decompressor else piece
            except zlib.error:
                return b"", "a response that can't be decompressed"
            if len(body) > self._most:
                return b"", f"a response of more than {self._most} bytes"
        return bytes(body), ""


def _reason(error: Exception, proxy: Proxy | None) -> Reason:
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or _is_certificate_alert(error):
        return "tls"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return "proxy"
    if isinstance(error, aiohttp.ClientConnectorError):
        # With a proxy, podgpu connects to nothing else.
        return "proxy" if proxy is not None else "unreachable"
    return "broken"


def _describe_proxy_error(error: Exception, proxy: Proxy) -> str:
    fix = f"check {proxy.variable} and no_proxy"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        text = f"answered {error.status} {line(error.message, 60)}".rstrip()
        return f"the proxy {proxy.url} {text}; {fix}, and the log of the proxy"
    text = getattr(error, "strerror", None) or type(error).__name__
    return f"can't connect to the proxy {proxy.url}: {line(str(text))}; {fix}"


def _is_certificate_alert(error: Exception) -> bool:
    """Return whether TLS failed because the server refused or missed a client certificate."""
    return "ALERT" in str(error) and "CERTIFICATE" in str(error)
