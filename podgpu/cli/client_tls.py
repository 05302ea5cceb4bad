"""Read the files that an `Access` names, and build the TLS context and the credentials. Blocking.

The options are defined in `client_options`.
"""

import base64
import os
import ssl
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError
from pipeline.base.safe_text import line
from pipeline.net.pem import PemError, client_context
from podgpu.cli.client_options import Access, CredentialOption

_MAX_BYTES: Final = 1 << 20
_FIXES: Final[dict[str, str]] = {
    "ca": "give the certificate of the authority that signed the daemon's certificate",
    "cert": "give the client certificate, followed by its intermediate certificates",
    "key": "give the private key of the client certificate, in PEM and not encrypted",
}


def context(access: Access) -> ssl.SSLContext:
    """Return the TLS context: how to verify the daemon, and the client certificate.

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
    """Return the value of the `Authorization` header (RFC 7617, in UTF-8); empty without a user.

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
    """Return the option or variable and the file that it names, for messages."""
    return f"{given.origin} {line(given.value)}"


def _read(given: CredentialOption) -> bytes:
    place = place_of(given)
    try:
        # The path may be a pipe, such as <(pass show gpu) in a shell.
        with Path(given.value).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise PermanentError(f"{place}: no such file; check the path") from None
    except PermissionError:
        text = f"permission denied to uid {os.geteuid()}; make the file readable for it"
        raise PermanentError(f"{place}: {text}") from None
    except OSError as error:
        text = os.strerror(error.errno or 0).lower()
        raise PermanentError(f"{place}: {text}; give the path of a file") from None
    if len(data) > _MAX_BYTES:
        raise PermanentError(f"{place}: is larger than {_MAX_BYTES} bytes; give another file")
    return data
