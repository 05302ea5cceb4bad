"""HTTP client that queries a running daemon.

It uses `http.client`, because importing aiohttp takes longer than the request.
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

_TIMEOUT_S: Final = 15.0
_MAX_BYTES: Final = 16 << 20


class NotListeningError(Exception):
    """No server answers at the address."""


def get(url: str, path: str, query: Mapping[str, str], access: Access = NO_ACCESS_OPTIONS) -> str:
    """Return the body of a page, as text. Redirects are not followed and no proxy is used.

    The text comes from the daemon: pass it through `output` before printing it on a terminal.

    Args:
        url: address of the daemon, `http://HOST:PORT` or `https://HOST:PORT`.
        path: path of the page.
        query: query parameters.
        access: TLS and credentials.

    Raises:
        NotListeningError: no server listens at the address.
        PermanentError: the URL is invalid, `access` cannot be used or does not fit the URL, or
            the daemon refuses the request (with the daemon's message).
        TransientError: there is no usable response.
    """
    address = _address(url)
    _check_access(address, access)
    headers = {"User-Agent": f"podgpu/{VERSION}"}
    if secret := authorization(access):
        headers["Authorization"] = secret
    connection = (
        http.client.HTTPSConnection(
            address.host, address.port, timeout=_TIMEOUT_S, context=context(access)
        )
        if address.secure
        else http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    )
    target = address.path + path + (f"?{urlencode(query)}" if query else "")
    try:
        response, body = _exchange(connection, target, headers)
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise NotListeningError(f"nothing answers at {address}: {error.strerror}") from error
    except TimeoutError as error:
        raise TransientError(
            f"{address}: no answer within {_TIMEOUT_S:g} s; check that the address is right and "
            "reachable"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        message = daemon_errors.broken(error, address.host, access, secure=address.secure)
        raise TransientError(f"{address}: {message}") from error
    finally:
        connection.close()
    if len(body) > _MAX_BYTES:
        raise TransientError(
            f"{address}: the response is larger than {_MAX_BYTES} bytes; check that the server is "
            "podgpu"
        )
    text = body.decode("utf-8", "replace")
    if response.status == HTTPStatus.BAD_REQUEST:
        raise PermanentError(daemon_errors.one_line(text))
    if response.status != HTTPStatus.OK:
        page = str(address).rstrip("/") + path
        message = daemon_errors.one_line(text) or daemon_errors.one_line(response.reason)
        raise TransientError(
            f"{page} answers {response.status}"
            + daemon_errors.refused(
                response.status, message, page, response.getheader("Location"), access
            )
        )
    return text


def place(url: str) -> str:
    """Return the address that `get` queries, for messages.

    Raises:
        PermanentError: the URL is invalid.
    """
    return str(_address(url))


def _exchange(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send the request and return the response with its body, up to one byte over the limit.

    Raises:
        TimeoutError: the exchange takes longer than the timeout in all.
    """
    connection.connect()
    sock, timed_out = connection.sock, threading.Event()

    def abort() -> None:
        timed_out.set()
        with suppress(OSError):
            # `shutdown` of the TLS socket would remove the TLS layer while the reader uses it.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    # http.client applies its timeout to each read only: a slow server could keep it busy forever.
    timer = threading.Timer(_TIMEOUT_S, abort)
    timer.daemon = True
    timer.start()
    try:
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        body = response.read(_MAX_BYTES + 1)
        # http.client does not detect a short body when `read` has a limit.
        if response.length and len(body) <= _MAX_BYTES:
            raise http.client.IncompleteRead(b"", response.length)
    except (OSError, http.client.HTTPException) as error:
        if timed_out.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    if timed_out.is_set():
        raise TimeoutError
    return response, body


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
    # Checked first, because any other message would repeat the password.
    if "@" in url:
        raise PermanentError(
            "do not put a user name or password in the address, other users could read them: "
            f"give --user, and --password-file or the variable {PASSWORD}"
        )
    try:
        where = urlsplit(url)
        port = where.port
    except ValueError:
        where, port = urlsplit(""), None
    kinds = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
    # The invalid part is not repeated in the message: it may be a password or a token.
    if where.query or where.fragment:
        raise PermanentError(
            "the address must have no query and no fragment, other users could read them: "
            f"give an address such as {LOCAL}"
        )
    if where.scheme not in kinds or not where.hostname:
        raise PermanentError(f"not a valid address: give an address such as {LOCAL}")
    # Without a port, http.client would take the last part of an IPv6 address as the port.
    port = kinds[where.scheme] if port is None else port
    return _Address(
        where.hostname,
        port,
        where.path.rstrip("/"),
        where.scheme == "https",
        line(f"{where.scheme}://{where.netloc}{where.path}"),
    )


def _check_access(address: _Address, access: Access) -> None:
    if address.secure:
        return
    for given in (access.ca_file, access.cert_file):
        # Only options are checked: a variable applies to all addresses.
        if given is not None and given.option:
            raise PermanentError(
                f"{given.origin} is for TLS: give --url https://HOST:PORT, not {address}"
            )
    if access.user is not None and not address.loopback and not access.insecure:
        raise PermanentError(
            f"{address}: over plain HTTP the password could be read on the network; give an "
            "https:// address, or --insecure to send it anyway"
        )
