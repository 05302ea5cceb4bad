"""Reads what `access` names: whom a daemon has to be signed by, and who we are. Blocking."""

import base64
import os
import ssl
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError
from pipeline.base.safe_text import line
from pipeline.net.pem import Part, PemError, client_context
from podgpu.cli.client_options import Access, CredentialOption

_MOST: Final = 1 << 20
_FIXES: Final[dict[Part, str]] = {
    "ca": "give the certificate of the authority that signed the daemon's",
    "cert": "give the client's certificate, followed by those between it and its authority",
    "key": "give the key that was made with the certificate, PEM and not encrypted",
}


def context(access: Access) -> ssl.SSLContext:
    """Return how the daemon is checked, and the certificate that it is shown.

    Raises:
        PermanentError: a file can't be used; the text names the option, the file and the mend.
    """
    named = {"ca": access.ca_file, "cert": access.cert_file, "key": access.key_file}
    if access.insecure:
        named["ca"] = None
    texts = {part: _read(given) if given is not None else None for part, given in named.items()}
    try:
        made = client_context(texts["ca"], texts["cert"], texts["key"])
    except PemError as error:
        given = named[error.part]
        place = place_of(given) if given is not None else error.part
        raise PermanentError(f"{place}: {error}; {_FIXES[error.part]}") from None
    # RFC 9525 forbids it, and Prometheus, which asks the same listener, doesn't do it either.
    made.hostname_checks_common_name = False
    if access.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def authorization(access: Access) -> str:
    """Return the value of the header of that name (RFC 7617, in UTF-8); empty for nobody.

    Raises:
        PermanentError: the password can't be read, or is no line of text.
    """
    if access.user is None:
        return ""
    if access.password_file is not None:
        # As Prometheus reads its `password_file`: blanks around it don't count.
        place, secret = place_of(access.password_file), _read(access.password_file).strip()
    else:
        assert access.password is not None  # noqa: S101 -- `access_of` sees to it
        place, secret = access.password.origin, os.fsencode(access.password.value).strip(b"\r\n")
    if not secret or any(byte < 0x20 or byte == 0x7F for byte in secret):
        raise PermanentError(f"{place}: has to be one line, the password alone")
    pair = os.fsencode(access.user.value) + b":" + secret
    return f"Basic {base64.b64encode(pair).decode()}"


def place_of(given: CredentialOption) -> str:
    """Return the option or variable, and the file that it names, for people."""
    return f"{given.origin} {line(given.value)}"


def _read(given: CredentialOption) -> bytes:
    place = place_of(given)
    try:
        # A pipe will do, such as a shell's <(pass show gpu).
        with Path(given.value).open("rb") as file:
            data = file.read(_MOST + 1)
    except FileNotFoundError:
        raise PermanentError(f"{place}: no such file; see that the path is right") from None
    except PermissionError:
        text = f"permission denied to uid {os.geteuid()}; let it read the file"
        raise PermanentError(f"{place}: {text}") from None
    except OSError as error:
        text = os.strerror(error.errno or 0).lower()
        raise PermanentError(f"{place}: {text}; give the path of a file") from None
    if len(data) > _MOST:
        raise PermanentError(f"{place}: is larger than {_MOST} bytes; give another file")
    return data
