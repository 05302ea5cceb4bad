"""Gets one page over HTTP, with limits on time and size.

It imports aiohttp, which takes 10 MB and 0.1 s: import this module only where it is needed.
"""

import base64
import binascii
import os
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, unquote_plus

import aiohttp
from yarl import URL

from pipeline.base.errors import TransientError
from pipeline.base.safe_text import line, redact, without_query
from pipeline.base.version import VERSION
from pipeline.net.proxies import Proxy, ProxyError, proxy_for

_HEADERS: Final = {"User-Agent": f"podgpu/{VERSION}"}
_HEADER_BYTES: Final = 1 << 14
"""Maximum length of a line in a response's header."""

_FIXES: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "check the user name, password or token",
    HTTPStatus.FORBIDDEN: "check the user name, password or token",
    HTTPStatus.NOT_FOUND: "check the path",
}
BROKEN: Final = (aiohttp.ClientError, OSError, ValueError)
"""Exceptions of a failed request. `ssl.SSLError` and `TimeoutError` are kinds of `OSError`."""


def tls(ca_file: Path | None = None, *, insecure: bool = False) -> ssl.SSLContext:
    """Return a TLS context that verifies servers. It reads files: call it in a thread.

    Args:
        ca_file: file with certificates of authorities; None for those of the system.
        insecure: whether to accept any server, without verification.

    Raises:
        TransientError: the certificates cannot be read; the text names the file.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except FileNotFoundError:
        raise TransientError(f"{ca_file}: no such file; check that ca_file is mounted") from None
    except ssl.SSLError as error:
        fix = "ca_file must contain certificates in PEM format"
        raise TransientError(f"{ca_file}: {line(str(error))}; {fix}") from error
    except OSError as error:
        raise TransientError(f"{ca_file}: {line(str(error.strerror or error))}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def new_session(
    timeout: float, connector: aiohttp.BaseConnector | None = None
) -> aiohttp.ClientSession:
    """Return a session that keeps no cookies, and limits the time and the length of header lines.

    Args:
        timeout: seconds for one request and its response.
        connector: makes the connections; None for the library's default.
    """
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=timeout),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_line_size=_HEADER_BYTES,
        max_field_size=_HEADER_BYTES,
    )


def request_options(
    url: str, headers: Mapping[str, str], context: ssl.SSLContext | None, proxy: Proxy | None
) -> dict[str, Any]:
    """Return the options of a request without redirects, through the proxy if there is one.

    Args:
        url: URL without user and password.
        headers: headers of the request.
        context: verifies the server; None for the certificates of the system.
        proxy: the proxy for the URL; None for a direct connection.
    """
    # A small compressed body could become arbitrarily large.
    sent = {"Accept-Encoding": "identity", **headers}
    options: dict[str, Any] = {
        "headers": sent,
        "allow_redirects": False,
        "ssl": True if context is None else context,
    }
    if proxy is not None:
        for_request, options["proxy_headers"] = proxy.sent(url)
        sent |= for_request
        options["proxy"] = proxy.url
    return options


async def fetch(
    url: str,
    *,
    timeout: float,
    most: int,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return the body of a page.

    Redirects are not followed. Environment variables set the proxy, see `pipeline.net.proxies`.

    Args:
        url: URL without user and password.
        timeout: seconds for the request and its complete response.
        most: maximum length of the body, in bytes.
        headers: headers of the request.
        context: verifies the server; None for the certificates of the system.

    Raises:
        TransientError: the request failed, the status is not 200, or the body is compressed or too
            long. The text contains the URL without its query, and no secrets.
    """
    shown_url = without_query(url)
    secrets = frozenset(_secrets(url, headers or {}))
    try:
        options = request_options(
            url, {**_HEADERS, **(headers or {})}, context, proxy_for(url, os.environ)
        )
        async with new_session(timeout) as session, session.get(url, **options) as response:
            if response.status != HTTPStatus.OK:
                raise TransientError(f"{shown_url}: {_status_error(response, secrets)}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise TransientError(
                    f"{shown_url}: sent a compressed response, which podgpu did not request"
                )
            if len(body := await body_of(response, most)) > most:
                text = f"is larger than {int(most)} bytes; check that it is the right page"
                raise TransientError(f"{shown_url}: {text}")
            return body
    except ProxyError as error:
        raise TransientError(f"{shown_url}: {error}") from None
    except TimeoutError as error:
        raise TransientError(
            f"{shown_url}: no complete response within {timeout:g} s; check the address, and that "
            "the server is reachable and not too slow"
        ) from error
    except BROKEN as error:
        raise TransientError(f"{shown_url}: {redact(describe_error(error), secrets)}") from error


def _secrets(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield secret parts of a request, which a server may repeat in its response."""
    for query in (url.partition("#")[0].partition("?")[2], _raw_query(url)):
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


def _raw_query(url: str) -> str:
    """Return the query as aiohttp sends it, with its own quoting; see `yarl.URL`."""
    try:
        return URL(url).raw_query_string
    except ValueError:  # aiohttp will raise it too
        return ""


async def body_of(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of a response; if it is longer than `most`, its first `most` + 1 bytes."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            response.close()  # the rest is not read
            break
    return bytes(body[: most + 1])


def _status_error(response: aiohttp.ClientResponse, secrets: frozenset[str]) -> str:
    status = response.status
    reason = line(redact(response.reason or "", secrets), 60)
    text = f"answered {status} {reason}".rstrip()
    if 300 <= status < 400 and (location := response.headers.get("Location")):
        where = line(redact(without_query(location), secrets))
        return f"{text}; set the address to which it redirects: {where}"
    return f"{text}; {_FIXES.get(status, 'check the log of that server')}"


def describe_error(error: Exception) -> str:
    """Return a text for an exception of `BROKEN`, with a fix if one is known.

    The text is equal for equal errors.
    """
    text = line(_error_text(error)) or type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        if "WRONG_VERSION_NUMBER" in text:
            return f"TLS failed: {text}; if the server does not use TLS, write http"
        return f"TLS failed: {text}; check the server's certificate, its address and ca_file"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{text}; check that the server runs and its address is right"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return f"the connection broke: {text}; check the log of that server"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the response can't be read: {text}; check that it is an HTTP server"
    return f"{type(error).__name__}: {text}"


def _error_text(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        # The library's own text contains the address of an object, which varies.
        return f"can't connect to {error.host}:{error.port}: {error.strerror}"
    if isinstance(error, aiohttp.ClientResponseError):
        # The library's text ends with the whole URL, which may contain a secret. The received bytes
        # follow on further lines.
        return error.message.strip().partition("\n")[0].rstrip(": ")
    return str(error)
