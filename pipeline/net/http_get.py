"""Gets one page over HTTP, within bounds of time and size.

It imports aiohttp, which costs 10 MB and a tenth of a second: import it where it is used.
"""

import base64
import binascii
import os
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_plus

import aiohttp
from yarl import URL

from pipeline.base.errors import TransientError
from pipeline.base.safe_text import line, redact, without_query
from pipeline.base.version import VERSION
from pipeline.net.proxies import ProxyError, proxy_for

_HEADERS: Final = {
    "User-Agent": f"podgpu/{VERSION}",
    # What is packed tightly could be of any size once it is unpacked.
    "Accept-Encoding": "identity",
}
HEADER_BYTES: Final = 1 << 14
"""The longest line of an answer's head that is taken."""

_FIXES: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "see that user, password or token are those that it takes",
    HTTPStatus.FORBIDDEN: "see that user, password or token are those that it takes",
    HTTPStatus.NOT_FOUND: "see that the path is right",
}
BROKEN: Final = (aiohttp.ClientError, OSError, ValueError)
"""What a request fails with. ssl.SSLError and TimeoutError are OSErrors."""


def tls(ca_file: Path | None = None, *, insecure: bool = False) -> ssl.SSLContext:
    """Return how a server is checked. Reads files: call it in a thread.

    Args:
        ca_file: certificates to check with; None for the system's.
        insecure: any server will do.

    Raises:
        TransientError: there are no such certificates; the text names the file.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except FileNotFoundError:
        raise TransientError(f"{ca_file}: no such file; see that ca_file is mounted") from None
    except ssl.SSLError as error:
        mend = "ca_file has to be certificates in PEM form"
        raise TransientError(f"{ca_file}: {line(str(error))}; {mend}") from error
    except OSError as error:
        raise TransientError(f"{ca_file}: {line(str(error.strerror or error))}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def fetch(
    url: str,
    *,
    timeout: float,
    most: int,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return a page's body.

    Redirects are not followed. The variables name the proxy, see `pipeline.net.proxies`.

    Args:
        url: without user and password.
        timeout: seconds for the whole of it.
        most: bytes of the body.
        headers: of the request.
        context: how the server is checked; None for the system's certificates.

    Raises:
        TransientError: there is no such page; the text names the url, without its query, and what
            mends it, and repeats nothing that may be a secret.
    """
    place = without_query(url)
    secrets = frozenset(_secrets(url, headers or {}))
    bound = aiohttp.ClientTimeout(total=timeout)
    try:
        proxy = proxy_for(url, os.environ)
        for_request, for_proxy = proxy.sent(url) if proxy else ({}, {})
        async with (
            aiohttp.ClientSession(
                timeout=bound,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=HEADER_BYTES,
                max_field_size=HEADER_BYTES,
            ) as session,
            session.get(
                url,
                headers={**_HEADERS, **(headers or {}), **for_request},
                allow_redirects=False,
                ssl=True if context is None else context,
                proxy=proxy.url if proxy else None,
                proxy_headers=for_proxy,
            ) as response,
        ):
            if response.status != HTTPStatus.OK:
                raise TransientError(f"{place}: {_refusal(response, secrets)}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise TransientError(f"{place}: sent a packed page, which was not asked for")
            return await _body(response, place, most)
    except ProxyError as error:
        raise TransientError(f"{place}: {error}") from None
    except TimeoutError as error:
        raise TransientError(
            f"{place}: no answer within {timeout:g} s; see that the address is right and reachable"
        ) from error
    except BROKEN as error:
        raise TransientError(f"{place}: {redact(describe_error(error), secrets)}") from error


def _secrets(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield what a server may repeat of a request and people may not read."""
    for query in (url.partition("#")[0].partition("?")[2], _sent(url)):
        yield query
        for word in query.split("&"):
            name, equals, value = word.partition("=")
            raw = value if equals else name
            yield from (raw, unquote(raw), unquote_plus(raw))
    for name, value in headers.items():
        if name.lower() != "authorization":
            continue
        scheme, _, word = value.partition(" ")
        yield word
        if scheme.lower() == "basic":
            try:
                yield base64.b64decode(word).decode("utf-8", "replace").partition(":")[2]
            except binascii.Error:
                continue


def _sent(url: str) -> str:
    """Return the query as aiohttp sends it, which quotes it in its own way; see `yarl.URL`."""
    try:
        return URL(url).raw_query_string
    except ValueError:  # aiohttp will say so
        return ""


async def _body(response: aiohttp.ClientResponse, place: str, most: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            # The rest is left on the line: closing the session drops it.
            response.close()
            raise TransientError(
                f"{place}: is larger than {int(most)} bytes; see that it is the right one"
            )
    return bytes(body)


def _refusal(response: aiohttp.ClientResponse, secrets: frozenset[str]) -> str:
    status = response.status
    reason = line(redact(response.reason or "", secrets), 60)
    said = f"answered {status} {reason}".rstrip()
    if 300 <= status < 400 and (elsewhere := response.headers.get("Location")):
        where = line(redact(without_query(elsewhere), secrets))
        return f"{said}; give the address that it points to: {where}"
    return f"{said}; {_FIXES.get(status, 'see the log of that server')}"


def describe_error(error: Exception) -> str:
    """Return what one of `BROKEN` says, with what mends it; the same words for the same fault."""
    said = line(_error_text(error)) or type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        if "WRONG_VERSION_NUMBER" in said:
            return f"TLS failed: {said}; is it a server with TLS? If not, write http"
        return f"TLS failed: {said}; see that the server's certificate fits its address and ca_file"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{said}; see that the server runs and its address is right"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return f"the connection broke: {said}; see the log of that server"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer can't be read: {said}; see that it is a server for HTTP"
    return f"{type(error).__name__}: {said}"


def _error_text(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        # The library's own text has the address of an object in it, another one each time.
        return f"can't connect to {error.host}:{error.port}: {error.strerror}"
    if isinstance(error, aiohttp.ClientResponseError):
        # Its own text ends with the whole URL, in which there may be a secret. The bytes that came
        # follow in further lines.
        return error.message.strip().partition("\n")[0].rstrip(": ")
    return str(error)
