"""Asks a running daemon."""

import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from pipeline.cli.topology.arguments import LOCAL
from pipeline.errors import PermanentError, TransientError

_SECONDS: Final = 15.0
_MOST: Final = 16 << 20
_LONGEST: Final = 500


class NobodyThereError(Exception):
    """Nothing listens at the address."""


def get(url: str, path: str, query: Mapping[str, str]) -> str:
    """Return the body of a page, as text.

    Not by aiohttp, which takes longer to load than the answer to come.

    Args:
        url: of the listener, `http://HOST:PORT`.
        path: of the page.
        query: its parameters.

    Raises:
        NobodyThereError: nothing listens there.
        PermanentError: the url is none, or the daemon refuses the question; with its own words.
        TransientError: there is no good answer.
    """
    where = urlsplit(url)
    try:
        port = where.port
    except ValueError:
        port = -1
    if where.scheme not in {"http", "https"} or not where.hostname or port == -1:
        raise PermanentError(f"{url}: give an address such as {LOCAL}")
    if where.username is not None:
        raise PermanentError("no users and passwords in the address: others could read it")
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(where.hostname, port, timeout=_SECONDS)
    target = where.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read(_MOST + 1)
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise NobodyThereError(f"nothing answers at {url}: {error.strerror}") from error
    except ssl.SSLError as error:
        raise TransientError(f"{url}: TLS failed: {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TransientError(f"{url}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if len(body) > _MOST:
        raise TransientError(f"{url}: the answer is larger than {_MOST} bytes; is it podgpu?")
    text = body.decode("utf-8", "replace")
    if answer.status == http.client.BAD_REQUEST:
        raise PermanentError(text[:_LONGEST].strip())
    if answer.status != http.client.OK:
        said = text[:_LONGEST].strip() or answer.reason
        raise TransientError(f"{url}{path} answers {answer.status}: {said}")
    return text
