"""Certificates and keys in PEM, as the TLS library takes them. Blocking: in a thread."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NoReturn, TypeAlias

Part: TypeAlias = Literal["ca", "cert", "key"]


class PemError(Exception):
    """A text can't be used; the message says why, without its place.

    Attributes:
        part: which of them.
    """

    def __init__(self, part: Part, message: str) -> None:
        super().__init__(message)
        self.part = part


def client_context(ca: bytes | None, cert: bytes | None, key: bytes | None) -> ssl.SSLContext:
    """Return how a server is checked, and how we show who we are.

    Args:
        ca: certificates to check with; None for the system's.
        cert: our own certificate, with those between it and its authority; None to show none.
        key: its key, not encrypted.

    Raises:
        PemError: one of them can't be used.
    """
    if ca is None:
        context = ssl.create_default_context()
    else:
        with as_file(ca, "ca") as path:
            try:
                context = ssl.create_default_context(cafile=path)
            except ssl.SSLError:
                raise PemError("ca", "has no certificate in PEM form that can be used") from None
    if cert is not None and key is not None:
        identify(context, cert, key)
    return context


def identify(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Have a context show a certificate.

    Args:
        context: a server's or a client's.
        cert: the certificate, with those between it and its authority.
        key: its key, not encrypted.

    Raises:
        PemError: one of them can't be used.
    """
    with as_file(cert, "cert") as chain, as_file(key, "key") as private:
        try:
            # Without a callback the library would ask for a passphrase on the terminal.
            context.load_cert_chain(chain, private, password=_encrypted)
        except _EncryptedError:
            text = "is encrypted: podgpu can ask nobody for the passphrase"
            raise PemError("key", text) from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise PemError("key", "is not the key of the certificate") from None
            part: Part = "key" if _holds_certificate(chain) else "cert"
            noun = "key" if part == "key" else "certificate"
            raise PemError(part, f"has no {noun} in PEM form that can be used") from None


def _holds_certificate(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError:
        return False
    return True


class _EncryptedError(Exception):
    pass


def _encrypted() -> NoReturn:
    raise _EncryptedError


@contextmanager
def as_file(text: bytes, part: Part) -> Iterator[str]:
    """Lend a path to bytes that are in memory: the library takes certificates from files alone.

    So what is used is what was read and compared, and a key never comes to lie on a disk.

    Raises:
        PemError: there is no file for it, or the library can't open that: no file descriptor may be
            left. An `ssl.SSLError` is the caller's.
    """
    try:
        descriptor = os.memfd_create("podgpu-tls", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(text)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    except ssl.SSLError:
        raise
    except OSError as error:
        raise PemError(part, f"cannot be given to the TLS library: {error.strerror}") from error
