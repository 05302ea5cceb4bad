"""What is said of a daemon that gives no good answer: what is wrong, and what mends it."""

import http.client
import ssl
from http import HTTPStatus
from typing import Final
from urllib.parse import urljoin, urlsplit

from pipeline.base.safe_text import line
from podgpu.cli.client_options import PASSWORD, Access
from podgpu.cli.client_tls import place_of

_LONGEST: Final = 500

# OpenSSL's x509_vfy.h.
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""Self-signed, alone or at the end of the chain; its issuer isn't known, or isn't there."""
_OTHER_NAME: Final = frozenset({62, 64})

_CUT: Final = (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError)
"""What comes of a listener that ends the connection: podgpu's does so without a word."""


def words(text: str) -> str:
    """Return what a daemon says, on one line and not too long."""
    return line(text.strip(), _LONGEST)


def broken(error: Exception, host: str, access: Access, *, secure: bool) -> str:
    """Return why there was no answer.

    Args:
        error: of the connection or of `http.client`.
        host: that was connected to.
        access: how it was asked.
        secure: over TLS.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, host, access)
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "is no server with TLS; write http:// if it is a daemon"
    alert = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
    if alert or isinstance(error, _CUT):
        return f"ended the connection without an answer; {_cut(access, secure=secure)}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {line(error.reason or str(error))}; is it podgpu?"
    if isinstance(error, http.client.HTTPException):
        return f"the answer can't be read: {line(repr(error))}; is it podgpu?"
    return line(str(error)) or type(error).__name__


def _cut(access: Access, *, secure: bool) -> str:
    if not secure:
        return "if it serves TLS, write https://"
    if access.cert_file is None:
        return "it may want a client certificate: give --cert-file and --key-file"
    return f"see that it takes the client certificate of {place_of(access.cert_file)}"


def _untrusted(error: ssl.SSLCertVerificationError, host: str, access: Access) -> str:
    code = error.verify_code
    if code in _OTHER_NAME:
        return (
            f"its certificate is not for {host}; ask by a name or address that the certificate has "
            "(subjectAltName, not the common name)"
        )
    if code in (_EXPIRED, _NOT_YET):
        when = "has expired" if code == _EXPIRED else "is not valid yet"
        return f"its certificate {when}; renew it, or see this machine's clock"
    if code not in _UNTRUSTED:
        return f"its certificate is not good: {line(error.verify_message)}; renew it"
    if access.ca_file is None:
        return "its certificate is not trusted; give the authority that signed it as --ca-file"
    return (
        f"its certificate is not trusted; {place_of(access.ca_file)} has to have the authority "
        "that signed it"
    )


def refused(status: int, said: str, page: str, location: str | None, access: Access) -> str:
    """Return what stands behind "PAGE answers STATUS".

    Args:
        status: not 200.
        said: the answer's own words.
        page: that was asked for.
        location: the answer's header.
        access: how it was asked.
    """
    if 300 <= status < 400 and location and (place := _place(page, location)):
        return f" and points to {place}, where podgpu doesn't follow; give that daemon's --url"
    mend = ""
    if status == HTTPStatus.UNAUTHORIZED:
        mend = f"; give --user, and --password-file or the variable {PASSWORD}"
        if access.user is not None:
            secret = access.password_file
            source = place_of(secret) if secret is not None else PASSWORD
            mend = f"; see that {place_of(access.user)} and {source} are what its web config has"
    elif status == HTTPStatus.FORBIDDEN:
        mend = "; see that whatever lets clients in there lets this user or client certificate in"
    return f": {said}{mend}"


def _place(page: str, location: str) -> str:
    """Return where a redirect points to, without what may be secret: user and query."""
    try:
        where = urlsplit(urljoin(page, location))
    except ValueError:
        return ""
    host = where.netloc.rpartition("@")[2]
    return line(f"{where.scheme}://{host}{where.path}")
