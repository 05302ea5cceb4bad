"""Loads certificates and keys in PEM format into the TLS library. It blocks: use a thread."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class PemError(Exception):
    """A PEM text cannot be used. The message says why, without the path of the text.

    Attributes:
        part: which text cannot be used: `ca`, `cert` or `key`.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


def client_context(ca: bytes | None, cert: bytes | None, key: bytes | None) -> ssl.SSLContext:
    """Return a TLS context for a client.

    Args:
        ca: certificates of authorities to verify the server; None for those of the system.
        cert: the client certificate with its intermediate certificates; None if there is none.
        key: the key of `cert`, not encrypted.

    Raises:
        PemError: one of the texts cannot be used.
    """
    if ca is None:
        context = ssl.create_default_context()
    else:
        with as_file(ca, "ca") as path:
            try:
                context = ssl.create_default_context(cafile=path)
            except ssl.SSLError:
                raise PemError("ca", "has no usable certificate in PEM format") from None
    if cert is not None and key is not None:
        load_certificate(context, cert, key)
    return context


def load_certificate(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Load a certificate and its key into a context.

    Args:
        context: TLS context of a server or of a client.
        cert: the certificate with its intermediate certificates.
        key: the key of the certificate, not encrypted.

    Raises:
        PemError: the certificate or the key cannot be used.
    """
    with as_file(cert, "cert") as chain, as_file(key, "key") as private:
        try:
            # Without a callback the library would prompt for a passphrase on the terminal.
            context.load_cert_chain(chain, private, password=_encrypted)
        except _EncryptedError:
            text = "is encrypted, and podgpu has no passphrase: remove the encryption"
            raise PemError("key", text) from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise PemError("key", "is not the key of the certificate") from None
            part, noun = ("cert", "certificate")
            if _holds_certificate(chain):
                part = noun = "key"
            raise PemError(part, f"has no usable {noun} in PEM format") from None


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
def as_file(text: bytes, part: str) -> Iterator[str]:
    """Provide a path to bytes in memory, because the library reads certificates only from files.

    So the library uses the same bytes that were read and compared, and a key is never written to a
    disk.

    Raises:
        PemError: the file in memory cannot be created or opened, for example because no file
            descriptors are left. An `ssl.SSLError` of the body is raised unchanged.
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
        raise PemError(part, f"cannot be passed to the TLS library: {error.strerror}") from error
