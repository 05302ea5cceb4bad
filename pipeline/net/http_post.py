"""Posts messages to one URL over HTTP, again and again, within bounds of time and size.

Like `pipeline.net.http_get` it imports aiohttp: import it where it is used.
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
from pipeline.net.http_get import BROKEN, HEADER_BYTES, describe_error
from pipeline.net.proxies import Proxy, ProxyError, proxy_for

Reason: TypeAlias = Literal["timeout", "tls", "unreachable", "proxy", "broken"]
"""Why there is no answer.

* `unreachable`: nobody took the connection, or the name doesn't resolve
* `proxy`: a proxy can't be used, isn't reached, or refused to pass it on
* `broken`: the connection ended before the whole of the answer came
"""

# Balancers let go of connections on which nothing was said for a minute.
_IDLE: Final = 30.0
_HTTP2: Final = re.compile(r"status line.*\\x00\\x00.{1,4}\\x04\\x00", re.DOTALL)
"""What the library says of a server that begins with a frame of settings (RFC 9113, 6.5)."""
_PACKED: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""What zlib calls the forms; 47 finds out by itself."""


class PostError(Exception):
    """There is no answer; the text names the place and the mend.

    Attributes:
        reason: a word for it.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered.

    Attributes:
        status: of HTTP.
        headers: with names in lower case; of several with one name, the first.
        body: unpacked; empty where there is a `fault`.
        fault: why there is no body, for people; empty where there is one.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    fault: str = ""


class Poster:
    """A place to post to. Keeps its connection for the next message, and looks its name up anew.

    Redirects are not followed. The proxy is the one that the variables name, see
    `pipeline.net.proxies`. Made in a running event loop.

    Args:
        url: without user and password.
        timeout: seconds for the whole of one message and its answer.
        most: bytes of an answer's body, unpacked.
        context: how the server is checked; None for the system's certificates.
        server_name: the name in the server's certificate; empty for the one in the URL.
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
        # What follows may be a secret.
        self._place = url.partition("?")[0]
        self._timeout = timeout
        self._most = most
        self._context = context
        self._server_name = server_name or None
        self._secure = url.lower().startswith("https:")
        # The library's own way reads ~/.netrc too.
        self._proxy: Proxy | None = None
        self._flaw: ProxyError | None = None
        try:
            self._proxy = proxy_for(url, os.environ)
        except ProxyError as error:
            self._flaw = error
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_IDLE, use_dns_cache=False),
            timeout=aiohttp.ClientTimeout(total=timeout),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )

    async def close(self) -> None:
        """Give the connections back."""
        await self._session.close()

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post a message and return what is answered, whatever its status.

        Args:
            body: of the request.
            headers: of the request; User-Agent is the caller's too.

        Raises:
            PostError: nobody answered.
        """
        if self._flaw is not None:
            raise PostError("proxy", f"{self._place}: {self._flaw}")
        for_request, for_proxy = self._proxy.sent(self._url) if self._proxy else ({}, {})
        try:
            async with self._session.post(
                self._url,
                # Large bytes as they are would be written in one piece.
                data=io.BytesIO(body),
                headers={"Accept-Encoding": "identity", **headers, **for_request},
                allow_redirects=False,
                ssl=True if self._context is None else self._context,
                server_hostname=self._server_name,
                proxy=self._proxy.url if self._proxy else None,
                proxy_headers=for_proxy,
            ) as response:
                content, fault = await self._body(response)
                if fault:
                    # The rest is left on the line.
                    response.close()
                lowered: dict[str, str] = {}
                for name, value in response.headers.items():
                    lowered.setdefault(name.lower(), value)
                return Answer(response.status, lowered, content, fault)
        except TimeoutError as error:
            raise PostError(
                "timeout",
                f"{self._place}: no whole answer within {self._timeout:g} s{self._proxy_text}; see "
                "that the address is right and reachable, and the server not overloaded",
            ) from error
        except BROKEN as error:
            reason = _reason(error, self._proxy)
            raise PostError(reason, f"{self._place}: {self._post_error(error, reason)}") from error

    @property
    def _proxy_text(self) -> str:
        return f" through the proxy that {self._proxy.variable} names" if self._proxy else ""

    def _post_error(self, error: Exception, reason: Reason) -> str:
        if _alert(error):
            return (
                f"TLS failed: {line(str(error))}; the server doesn't take the certificate that "
                "podgpu shows, or wants one: see cert_file and key_file"
            )
        if self._proxy is not None and reason == "proxy":
            return _of_proxy(error, self._proxy)
        if isinstance(error, aiohttp.ClientResponseError) and _HTTP2.search(error.message):
            return "answers in HTTP/2 alone: this looks like a port for gRPC; set protocol: grpc"
        text = describe_error(error)
        if reason == "broken" and self._secure:
            text += "; a server that wants another certificate may end it so: see cert_file"
        elif isinstance(error, aiohttp.ServerDisconnectedError):
            text += "; one with TLS may end it so: write https then"
        return f"{text}; it went{self._proxy_text}" if self._proxy else text

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[bytes, str]:
        """Return the body, or why it isn't taken."""
        form = response.headers.get("Content-Encoding", "identity").strip().lower()
        if form not in ("identity", *_PACKED):
            return b"", f"an answer that is packed as {line(form, 40)}, which was not asked for"
        unpacker = zlib.decompressobj(_PACKED[form]) if form in _PACKED else None
        body = bytearray()
        async for piece in response.content.iter_any():
            try:
                # One byte more than is taken tells that there is more.
                body += (
                    unpacker.decompress(piece, self._most + 1 - len(body)) if unpacker else piece
                )
            except zlib.error:
                return b"", "an answer that can't be unpacked"
            if len(body) > self._most:
                return b"", f"an answer of more than {self._most} bytes"
        return bytes(body), ""


def _reason(error: Exception, proxy: Proxy | None) -> Reason:
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or _alert(error):
        return "tls"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return "proxy"
    if isinstance(error, aiohttp.ClientConnectorError):
        # Nothing else is connected to where there is one.
        return "proxy" if proxy is not None else "unreachable"
    return "broken"


def _of_proxy(error: Exception, proxy: Proxy) -> str:
    mend = f"see {proxy.variable} and no_proxy"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        said = f"answered {error.status} {line(error.message, 60)}".rstrip()
        return f"the proxy {proxy.url} {said}; {mend}, and the log of the proxy"
    said = getattr(error, "strerror", None) or type(error).__name__
    return f"can't connect to the proxy {proxy.url}: {line(str(said))}; {mend}"


def _alert(error: Exception) -> bool:
    """Tell whether the server ended TLS because of our certificate, or for want of one."""
    return "ALERT" in str(error) and "CERTIFICATE" in str(error)
