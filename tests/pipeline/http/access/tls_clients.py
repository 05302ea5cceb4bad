"""TLS contexts of clients that trust only the authority `server` of the tests."""

import ssl

import trustme

from tests.support.web import authority


def client_context(leaf: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Return a client's context, with a certificate if one is given.

    The system's authorities are not loaded: that takes 20 ms, and they sign nothing here.
    """
    context = ssl.create_default_context(cadata=authority("server").cert_pem.bytes().decode())
    if leaf is not None:
        leaf.configure_cert(context)
    return context
