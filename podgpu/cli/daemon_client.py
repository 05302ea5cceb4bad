"""Asks a running daemon.

Not by aiohttp, which takes longer to load than the answer to come.
"""

import http.client
import ipaddress
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode, urlsplit

from pipeline.base.errors import PermanentError, TransientError
from pipeline.base.safe_text import line
from pipeline.base.version import VERSION
from podgpu.cli import daemon_errors
from podgpu.cli.client_options import LOCAL, NO_ACCESS_OPTIONS, PASSWORD, Access
from podgpu.cli.client_tls import authorization, context

_SECONDS: Final = 15.0
_MOST: Final = 16 << 20


class NotListeningError(Exception):
    """Nothing listens at the address."""


def get(url: str, path: str, query: Mapping[str, str], access: Access = NO_ACCESS_OPTIONS) -> str:
    """Return the body of a page, as text. Redirects are not followed, no proxy is asked.

    The text is the daemon's: see `output` before it goes to a terminal.

    Args:
        url: of the listener, `http://HOST:PORT` or `https://HOST:PORT`.
        path: of the page.
        query: its parameters.
        access: how the daemon is checked, and who asks.

    Raises:
        NobodyThereError: nothing listens there.
        PermanentError: the url is none, what `access` names can't be used or doesn't fit the url,
            or the daemon refuses the question; with its own words.
        TransientError: there is no good answer.
    """
    address = _address(url)
    _fits(address, access)
    headers = {"User-Agent": f"podgpu/{VERSION}"}
    if secret := authorization(access):
        headers["Authorization"] = secret
    connection = (
        http.client.HTTPSConnection(
            address.host, address.port, timeout=_SECONDS, context=context(access)
        )
        if address.secure
        else http.client.HTTPConnection(address.host, address.port, timeout=_SECONDS)
    )
    target = address.path + path + (f"?{urlencode(query)}" if query else "")
    try:
        answer, body = _exchanged(connection, target, headers)
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise NotListeningError(f"nothing answers at {address}: {error.strerror}") from error
    except TimeoutError as error:
        raise TransientError(
            f"{address}: no answer within {_SECONDS:g} s; see that the address is right and "
            "reachable"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = daemon_errors.broken(error, address.host, access, secure=address.secure)
        raise TransientError(f"{address}: {said}") from error
    finally:
        connection.close()
    if len(body) > _MOST:
        raise TransientError(f"{address}: the answer is larger than {_MOST} bytes; is it podgpu?")
    text = body.decode("utf-8", "replace")
    if answer.status == HTTPStatus.BAD_REQUEST:
        raise PermanentError(daemon_errors.words(text))
    if answer.status != HTTPStatus.OK:
        page = str(address).rstrip("/") + path
        said = daemon_errors.words(text) or daemon_errors.words(answer.reason)
        raise TransientError(
            f"{page} answers {answer.status}"
            + daemon_errors.refused(answer.status, said, page, answer.getheader("Location"), access)
        )
    return text


def place(url: str) -> str:
    """Return an address for people: where `get` asks.

    Raises:
        PermanentError: the url is none.
    """
    return str(_address(url))


def _exchanged(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    """Ask, and return the answer with its body, of which too much is cut off.

    Raises:
        TimeoutError: it takes too long.
    """
    connection.connect()
    line, late = connection.sock, threading.Event()

    def cut() -> None:
        late.set()
        with suppress(OSError):
            # The method of a line with TLS would take the TLS away under whoever is reading.
            socket.socket.shutdown(line, socket.SHUT_RDWR)

    # The library bounds each step alone: a byte every now and then would go on for ever.
    timer = threading.Timer(_SECONDS, cut)
    timer.daemon = True
    timer.start()
    try:
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        body = answer.read(_MOST + 1)
        # What the library doesn't look at when it is told how much to read.
        if answer.length and len(body) <= _MOST:
            raise http.client.IncompleteRead(b"", answer.length)
    except (OSError, http.client.HTTPException) as error:
        if late.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError
    return answer, body


@dataclass(frozen=True, slots=True)
class _Address:
    host: str
    port: int
    path: str
    secure: bool
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _address(url: str) -> _Address:
    # Before anything else is said of it: that would repeat a password, wherever it stands.
    if "@" in url:
        raise PermanentError(
            "no users and passwords in the address, others could read it: give --user, and "
            f"--password-file or the variable {PASSWORD}"
        )
    try:
        where = urlsplit(url)
        port = where.port
    except ValueError:
        where, port = urlsplit(""), None
    kinds = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
    # What is wrong is not repeated: it may be a password or a token.
    if where.query or where.fragment:
        raise PermanentError(
            "no query and no fragment in the address, others could read it: "
            f"give an address such as {LOCAL}"
        )
    if where.scheme not in kinds or not where.hostname:
        raise PermanentError(f"the address is none: give an address such as {LOCAL}")
    # Without a port the library would take the end of an IPv6 address for one.
    port = kinds[where.scheme] if port is None else port
    return _Address(
        where.hostname,
        port,
        where.path.rstrip("/"),
        where.scheme == "https",
        line(f"{where.scheme}://{where.netloc}{where.path}"),
    )


def _fits(address: _Address, access: Access) -> None:
    if address.secure:
        return
    for given in (access.ca_file, access.cert_file):
        # A variable is there for all addresses.
        if given is not None and given.option:
            raise PermanentError(
                f"{given.origin} is for TLS: give --url https://HOST:PORT, not {address}"
            )
    if access.user is not None and not address.loopback and not access.insecure:
        raise PermanentError(
            f"{address}: over plain HTTP everybody on the way could read the password; give an "
            "https:// address, or --insecure to send it all the same"
        )
