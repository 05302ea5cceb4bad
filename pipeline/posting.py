"""Posts messages to one URL over HTTP, again and again, within bounds of time and size.

Like `pipeline.fetching` it imports aiohttp: import it where it is used.
"""

import base64
import io
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp

from pipeline.fetching import BROKEN, HEADER_BYTES, told
from pipeline.texts import line

Reason: TypeAlias = Literal["timeout", "tls", "unreachable", "proxy", "broken"]
"""Why there is no answer.

* `unreachable`: nobody took the connection, or the name doesn't resolve
* `proxy`: a proxy refused to pass it on
* `broken`: the connection ended before the whole of the answer came
"""

# Balancers let go of connections on which nothing was said for a minute.
_IDLE: Final = 30.0
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

    Redirects are not followed. The proxy is the one that the variables HTTP_PROXY, HTTPS_PROXY and
    NO_PROXY name. Made in a running event loop.

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
        self._proxy, self._for_proxy = _proxy(url)
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
        try:
            async with self._session.post(
                self._url,
                # Large bytes as they are would be written in one piece.
                data=io.BytesIO(body),
                headers={
                    "Accept-Encoding": "identity",
                    **headers,
                    **({} if self._secure else self._for_proxy),
                },
                allow_redirects=False,
                ssl=True if self._context is None else self._context,
                server_hostname=self._server_name,
                proxy=self._proxy,
                # Of the request that asks the proxy for a connection; there is none without TLS.
                proxy_headers=self._for_proxy if self._secure else None,
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
                f"{self._place}: no whole answer within {self._timeout:g} s; see that the address "
                "is right and reachable, and the server not overloaded",
            ) from error
        except BROKEN as error:
            reason, text = _reason(error), _told(error)
            if reason == "broken" and self._secure:
                text += "; a server that wants another certificate may end it so: see cert_file"
            raise PostError(reason, f"{self._place}: {text}") from error

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


def _proxy(url: str) -> tuple[str | None, dict[str, str]]:
    """Return the proxy for a URL, and the headers for it. The library's own way reads ~/.netrc."""
    parts = urlsplit(url)
    proxies = getproxies_environment()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(parts.netloc, proxies):
        return None, {}
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    user, _, place = proxy.netloc.rpartition("@")
    headers = {}
    if user:
        pair = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return proxy._replace(netloc=place).geturl(), headers


def _reason(error: Exception) -> Reason:
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or _alert(error):
        return "tls"
    if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
        return "proxy"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "unreachable"
    return "broken"


def _told(error: Exception) -> str:
    if _alert(error):
        return (
            f"TLS failed: {line(str(error))}; the server doesn't take the certificate that podgpu "
            "shows, or wants one: see cert_file and key_file"
        )
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return (
            f"the proxy answered {error.status} {line(error.message, 60)}; see HTTPS_PROXY and "
            "NO_PROXY, and the log of the proxy"
        )
    return told(error)


def _alert(error: Exception) -> bool:
    """Tell whether the server ended TLS because of our certificate, or for want of one."""
    return "ALERT" in str(error) and "CERTIFICATE" in str(error)
