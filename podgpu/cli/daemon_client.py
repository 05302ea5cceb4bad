"""HTTP client that queries a running daemon. Its error messages name the problem and the fix.

It uses `http.client`, because importing aiohttp takes longer than the request.
"""

import base64
import http.client
import ipaddress
import os
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

from pipeline.base.errors import PermanentError, TransientError
from pipeline.base.safe_text import line
from pipeline.base.version import VERSION
from pipeline.net.pem import PemError, client_context
from podgpu.cli.client_options import LOCAL, NO_ACCESS_OPTIONS, PASSWORD, Access, CredentialOption

_TIMEOUT_S: Final = 15.0
_MAX_BYTES: Final = 16 << 20
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_CHARACTERS: Final = 500
_PAGES: Final = frozenset({"/status", "/metrics", "/topology", "/healthz", "/readyz"})
"""Pages of a daemon. A prefix with another name may be that of a proxy."""

_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}", re.ASCII)
"""Matches an address without a scheme, such as `localhost:9400`. It means HTTP."""

_PORTS: Final = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}

_OTHER_NAME: Final = (
    "is not valid for {}; use a host name or address from the certificate's subjectAltName (the "
    "common name does not count)"
)
# OpenSSL's x509_vfy.h.
_CERTIFICATE_ERRORS: Final = {
    9: "is not valid yet; renew it, or correct this machine's clock",
    10: "has expired; renew it, or correct this machine's clock",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a self-signed certificate, alone or in the chain, and an unknown issuer."""

_FIXES: Final[dict[str, str]] = {
    "ca": "give the certificate of the authority that signed the daemon's certificate",
    "cert": "give the client certificate, followed by its intermediate certificates",
    "key": "give the private key of the client certificate, in PEM and not encrypted",
}

_CLOSED_ERRORS: Final = (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError)
"""Errors if a server closes the connection without a response."""


class NotListeningError(Exception):
    """No server listens at the address, or the host name cannot be resolved."""


def get(url: str, path: str, query: Mapping[str, str], access: Access = NO_ACCESS_OPTIONS) -> str:
    """Return the body of a page as text. It follows no redirects and uses no proxy.

    The text comes from a server: pass it through `terminal_text.lines` before you print it.

    Args:
        url: address of the daemon, `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`.
        path: path of the page.
        query: query parameters.
        access: TLS and credentials.

    Raises:
        NotListeningError: no server listens at the address, or the host name cannot be resolved.
        PermanentError: the URL is invalid, `access` cannot be used or does not fit the URL, or
            the daemon refuses the request with status 400 (the text is the daemon's).
        TransientError: there is no usable response.
    """
    where = _address(url)
    _check_access(where, access)
    headers = {"User-Agent": f"podgpu/{VERSION}"}
    if secret := authorization(access):
        headers["Authorization"] = secret
    # Without a port, http.client would take the last part of an IPv6 address as the port.
    port = _PORTS[where.scheme] if where.port is None else where.port
    host = where.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context(access))
        if where.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    )
    address = _text(where)
    target = where.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
    try:
        response, body = _exchange(connection, target, headers)
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise NotListeningError(f"no server responds at {address}: {error.strerror}") from error
    except TimeoutError as error:
        raise TransientError(
            f"{address}: no complete response within {_TIMEOUT_S:g} s; check the address, and that "
            "the server is reachable and not too slow"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TransientError(f"{address}: {_broken(error, where, access)}") from error
    finally:
        connection.close()
    if len(body) > _MAX_BYTES:
        raise TransientError(
            f"{address}: the response is larger than {_MAX_BYTES} bytes; check that the server is "
            "podgpu"
        )
    text = body.decode("utf-8", "replace")
    if response.status == HTTPStatus.OK:
        return text
    # Texts of the daemon are shown on one line, and shortened.
    message = line(text.strip(), _MAX_CHARACTERS)
    if response.status == HTTPStatus.BAD_REQUEST:
        raise PermanentError(message)
    page = address.rstrip("/") + path
    message = message or line(response.reason.strip(), _MAX_CHARACTERS)
    location = response.getheader("Location")
    raise TransientError(
        f"{page} responded with status {response.status}"
        + _refused(response.status, message, page, location, access)
    )


def place(url: str) -> str:
    """Return the address that `get` queries, without the page, for messages.

    Raises:
        PermanentError: the URL is invalid.
    """
    return _text(_address(url))


def _text(where: SplitResult) -> str:
    return line(f"{where.scheme}://{where.netloc}{where.path}")


def _exchange(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send the request; return the response and its body, of at most `_MAX_BYTES` + 1 bytes.

    Raises:
        TimeoutError: connecting or the exchange takes longer than the timeout.
        OSError: the connection failed.
        HTTPException: the response is invalid or incomplete.
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


def _address(url: str) -> SplitResult:
    # Checked first, because any other message would repeat the password.
    if "@" in url:
        raise PermanentError(
            "do not put a user name or password in the address, because other users could read "
            "them: "
            f"give --user, and --password-file or the variable {PASSWORD}"
        )
    invalid = PermanentError(f"not a valid address: give an address such as {LOCAL}")
    if _HOST_AND_PORT.fullmatch(url):
        url = f"http://{url}"
    try:
        where = urlsplit(url)
        _ = where.port  # raises ValueError if it is invalid
    except ValueError:
        raise invalid from None
    # The invalid part is not repeated in the message: it may be a password or a token.
    if where.query or where.fragment:
        raise PermanentError(
            "the address must have no query and no fragment, because other users could read them: "
            f"give an address such as {LOCAL}"
        )
    if where.scheme not in _PORTS or not where.hostname:
        raise invalid
    page = f"/{where.path.rstrip('/').rpartition('/')[2]}"
    if page in _PAGES:
        base = where._replace(path=where.path.rstrip("/").removesuffix(page))
        raise PermanentError(
            f"the address must be that of the daemon, without the page {page}: give {_text(base)}"
        )
    return where


def _check_access(where: SplitResult, access: Access) -> None:
    if where.scheme == "https":
        return
    for given in (access.ca_file, access.cert_file):
        # Only options are checked: a variable applies to all addresses.
        if given is not None and given.option:
            raise PermanentError(
                f"{given.origin} is for TLS: give --url https://HOST:PORT, not {_text(where)}"
            )
    if access.user is not None and not access.insecure and not _is_loopback(where.hostname or ""):
        raise PermanentError(
            f"{_text(where)}: over plain HTTP the password could be read on the network; give an "
            "https:// address, or --insecure to send it anyway"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _broken(error: Exception, where: SplitResult, access: Access) -> str:
    """Return why there was no usable response, and a fix if one is known.

    Args:
        error: error of the connection or of `http.client`.
        where: address of the request.
        access: TLS and credentials of the request.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, where.hostname, access)
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the server does not use TLS; give an http:// address if it is a podgpu daemon"
    alert = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
    if alert or isinstance(error, _CLOSED_ERRORS):
        fix = "if the server uses TLS, give an https:// address"
        if where.scheme == "https":
            fix = "the server may require a client certificate: give --cert-file and --key-file"
            if access.cert_file is not None:
                fix = (
                    "check that the server accepts the client certificate of "
                    f"{place_of(access.cert_file)}"
                )
        return f"the server closed the connection without a response; {fix}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {line(error.reason or str(error))}; check that the server is podgpu"
    if isinstance(error, http.client.HTTPException):
        return f"the response is invalid: {line(repr(error))}; check that the server is podgpu"
    return line(str(error)) or type(error).__name__


def _untrusted(error: ssl.SSLCertVerificationError, host: str | None, access: Access) -> str:
    if error.verify_code not in _UNTRUSTED:
        other = f"is invalid: {line(error.verify_message)}; renew it"
        known = _CERTIFICATE_ERRORS.get(error.verify_code)
        return f"the server's certificate {known.format(host) if known is not None else other}"
    fix = "give the certificate of the authority that signed it with --ca-file"
    if access.ca_file is not None:
        place = place_of(access.ca_file)
        fix = f"{place} must contain the certificate of the authority that signed it"
    return f"the server's certificate is not trusted; {fix}"


def _refused(status: int, message: str, page: str, location: str | None, access: Access) -> str:
    """Return the text that follows "PAGE responded with status STATUS" in the error message.

    Args:
        status: HTTP status, not 200.
        message: message in the response.
        page: URL of the request.
        location: the header `Location` of the response.
        access: TLS and credentials of the request.
    """
    if 300 <= status < 400 and location and (place := _place(page, location)):
        return (
            f" and redirects to {place}; podgpu does not follow redirects: give the address of the "
            "daemon with --url"
        )
    fix = ""
    if status == HTTPStatus.UNAUTHORIZED:
        fix = f"; give --user, and --password-file or the variable {PASSWORD}"
        if access.user is not None:
            secret = access.password_file
            source = place_of(secret) if secret is not None else PASSWORD
            fix = (
                f"; check that {place_of(access.user)} and {source} match the daemon's web "
                "configuration file"
            )
    elif status == HTTPStatus.FORBIDDEN:
        fix = "; check that access control there allows this user or client certificate"
    return f": {message}{fix}"


def _place(page: str, location: str) -> str:
    """Return the target of a redirect without its user and query, which may be secret."""
    try:
        where = urlsplit(urljoin(page, location))
    except ValueError:
        return ""
    host = where.netloc.rpartition("@")[2]
    return line(f"{where.scheme}://{host}{where.path}")


def context(access: Access) -> ssl.SSLContext:
    """Return the TLS context, which verifies the daemon and presents the client certificate.

    Raises:
        PermanentError: a file cannot be used; the message has the option, the file and a fix.
    """
    named = {"ca": access.ca_file, "cert": access.cert_file, "key": access.key_file}
    if access.insecure:
        named["ca"] = None
    pems = {part: _read(given) if given is not None else None for part, given in named.items()}
    try:
        tls_context = client_context(pems["ca"], pems["cert"], pems["key"])
    except PemError as error:
        given = named[error.part]
        place = place_of(given) if given is not None else error.part
        raise PermanentError(f"{place}: {error}; {_FIXES[error.part]}") from None
    # RFC 9525 forbids the common name, and Prometheus does not check it either.
    tls_context.hostname_checks_common_name = False
    if access.insecure:
        tls_context.check_hostname = False
        tls_context.verify_mode = ssl.CERT_NONE
    return tls_context


def authorization(access: Access) -> str:
    """Return the value of the header `Authorization` (RFC 7617, in UTF-8); empty without a user.

    Raises:
        PermanentError: the password cannot be read, or is not one line of text.
    """
    if access.user is None:
        return ""
    if access.password_file is not None:
        # Surrounding whitespace is removed, as Prometheus does for its `password_file`.
        place, secret = place_of(access.password_file), _read(access.password_file).strip()
    else:
        assert access.password is not None  # noqa: S101 -- ensured by `access_of`
        place, secret = access.password.origin, os.fsencode(access.password.value).strip(b"\r\n")
    if not secret or any(byte < 0x20 or byte == 0x7F for byte in secret):
        raise PermanentError(f"{place}: must contain only the password, on one line")
    pair = os.fsencode(access.user.value) + b":" + secret
    return f"Basic {base64.b64encode(pair).decode()}"


def place_of(given: CredentialOption) -> str:
    """Return the option or variable and its value, which names a file or a user, for messages."""
    return f"{given.origin} {line(given.value)}"


def _read(given: CredentialOption) -> bytes:
    place = place_of(given)
    try:
        # The path may be a pipe, such as <(pass show gpu) in a shell.
        with Path(given.value).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise PermanentError(f"{place}: no such file; check the path") from None
    except PermissionError:
        text = f"permission denied to uid {os.geteuid()}; make the file readable for it"
        raise PermanentError(f"{place}: {text}") from None
    except OSError as error:
        text = os.strerror(error.errno or 0).lower()
        raise PermanentError(f"{place}: {text}; give the path of a file") from None
    if len(data) > _MAX_FILE_BYTES:
        raise PermanentError(f"{place}: is larger than {_MAX_FILE_BYTES} bytes; give another file")
    return data
