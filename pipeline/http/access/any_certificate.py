"""TLS contexts that require a client's certificate and accept any, as RequireAnyClientCert in Go.

Python's `ssl` can require a certificate only together with its verification. So such a context
trusts the certificate that a client sends, before the TLS library verifies it. The client still has
to prove that it has the certificate's key. If anything of this fails, the handshake fails.

The certificates stay in the context, so each connection needs a context of its own.
"""

import ssl
from collections.abc import Callable
from typing import Any, Final, Self

_HANDSHAKE: Final = 22
"""Content type of handshake messages, from RFC 8446."""

_CERTIFICATE: Final = 11
_HEADER_BYTES: Final = 4
_LENGTH_BYTES: Final = 3
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name: Go accepts expired ones too."""

IS_SUPPORTED: Final = hasattr(ssl.SSLContext, "_msg_callback")
"""Whether this Python shows handshake messages. Python has this for its own debugging."""


class AnyCertificateContext(ssl.SSLContext):
    """A server's TLS context for one connection, with a certificate of the client.

    Attributes:
        fresh: returns a new context with the same settings. It blocks.
    """

    fresh: Callable[[], "AnyCertificateContext"]

    @classmethod
    def make(cls, configure: Callable[[ssl.SSLContext], None]) -> Self:
        """Return a context.

        Args:
            configure: sets the certificate and all settings except those of clients.
        """
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        configure(context)
        context.verify_mode = ssl.CERT_REQUIRED
        # A certificate is trusted without the one of its issuer.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags |= _NO_CHECK_TIME
        context._msg_callback = _trust  # type: ignore[attr-defined]
        context.fresh = lambda: cls.make(configure)
        return context


def _trust(
    connection: ssl.SSLObject, direction: str, _: Any, content: int, message: int, data: bytes
) -> None:
    """Trust the certificate in a client's message. The TLS library calls it for each message."""
    if direction != "read" or content != _HANDSHAKE or message != _CERTIFICATE:
        return
    for is_tls13 in (True, False):
        if certificate := first_certificate(data, is_tls13=is_tls13):
            connection.context.load_verify_locations(cadata=certificate)
            return


def first_certificate(message: bytes, *, is_tls13: bool) -> bytes:
    """Return the client's own certificate in a Certificate message; empty if there is none.

    Args:
        message: the handshake message, with its header.
        is_tls13: whether the message is one of TLS 1.3, which begins with a request context
            (RFC 8446, 4.4.2); else it is as in RFC 5246, 7.4.2.
    """
    body = message[_HEADER_BYTES:]
    if is_tls13:
        body = body[1 + body[0] :] if body else b""
    size, rest = int.from_bytes(body[:_LENGTH_BYTES]), body[_LENGTH_BYTES:]
    if size != len(rest):
        return b""
    length = int.from_bytes(rest[:_LENGTH_BYTES])
    certificate = rest[_LENGTH_BYTES : _LENGTH_BYTES + length]
    return certificate if len(certificate) == length else b""
