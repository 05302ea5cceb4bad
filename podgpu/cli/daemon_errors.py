"""Error messages for a daemon that cannot be queried: what is wrong, and how to fix it."""

import http.client
import ssl
from http import HTTPStatus
from typing import Final
from urllib.parse import urljoin, urlsplit

from pipeline.base.safe_text import line
from podgpu.cli.client_options import PASSWORD, Access
from podgpu.cli.client_tls import place_of

_MAX_CHARACTERS: Final = 500

# OpenSSL's x509_vfy.h.
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""Codes for: self-signed, alone or at the end of the chain; issuer unknown or not found."""
_OTHER_NAME: Final = frozenset({62, 64})

_CLOSED_ERRORS: Final = (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError)
"""Errors when a server closes the connection. podgpu's server does so without a response."""


def one_line(text: str) -> str:
    """Return a text of the daemon on one line, shortened if it is too long."""
    return line(text.strip(), _MAX_CHARACTERS)


def broken(error: Exception, host: str, access: Access, *, secure: bool) -> str:
    """Return why there was no response.

    Args:
        error: error of the connection or of `http.client`.
        host: host of the connection.
        access: TLS and credentials of the request.
        secure: whether the connection uses TLS.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, host, access)
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the server does not use TLS; give an http:// address if it is a podgpu daemon"
    alert = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
    if alert or isinstance(error, _CLOSED_ERRORS):
        fix = _closed_fix(access, secure=secure)
        return f"the server closed the connection without a response; {fix}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {line(error.reason or str(error))}; check that the server is podgpu"
    if isinstance(error, http.client.HTTPException):
        return f"the response is invalid: {line(repr(error))}; check that the server is podgpu"
    return line(str(error)) or type(error).__name__


def _closed_fix(access: Access, *, secure: bool) -> str:
    if not secure:
        return "if it uses TLS, give an https:// address"
    if access.cert_file is None:
        return "it may require a client certificate: give --cert-file and --key-file"
    return f"check that it accepts the client certificate of {place_of(access.cert_file)}"


def _untrusted(error: ssl.SSLCertVerificationError, host: str, access: Access) -> str:
    code = error.verify_code
    if code in _OTHER_NAME:
        return (
            f"its certificate is not valid for {host}; use a host name or address from the "
            "certificate's subjectAltName (the common name does not count)"
        )
    if code in (_EXPIRED, _NOT_YET):
        when = "has expired" if code == _EXPIRED else "is not valid yet"
        return f"its certificate {when}; renew it, or correct this machine's clock"
    if code not in _UNTRUSTED:
        return f"its certificate is invalid: {line(error.verify_message)}; renew it"
    if access.ca_file is None:
        return (
            "its certificate is not trusted; give the certificate of the authority that signed it "
            "with --ca-file"
        )
    return (
        f"its certificate is not trusted; {place_of(access.ca_file)} must contain the certificate "
        "of the authority that signed it"
    )


def refused(status: int, message: str, page: str, location: str | None, access: Access) -> str:
    """Return the text that follows "PAGE answers STATUS" in the error message.

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
            fix = f"; check that {place_of(access.user)} and {source} match its web config file"
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
