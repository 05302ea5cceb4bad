"""Creates the TLS context from a web configuration. It blocks: call it in a thread."""

import ipaddress
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pipeline.http.access.any_certificate import IS_SUPPORTED, AnyCertificateContext
from pipeline.http.access.cipher_names import CURVES, SUITES
from pipeline.http.access.web_config_schema import TlsServer
from pipeline.net.pem import PemError, as_file, load_certificate

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


def make_context(options: TlsServer, texts: Mapping[str, bytes]) -> ssl.SSLContext:
    """Create the TLS context of the HTTP server.

    Args:
        options: the section `tls_server_config`, already checked.
        texts: content of `cert`, `key` and `client_ca` in PEM format, inline or from files.

    Raises:
        PemError: the TLS library does not accept one of the texts, or the cipher suites.
    """
    configure = partial(_configure, options, texts)
    if options.requires_any:
        if not IS_SUPPORTED:
            raise PemError("client_auth_type", "this Python cannot accept any certificate")
        return AnyCertificateContext.make(configure)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    configure(context)
    if options.verifies:
        _set_client_auth(context, options, texts["client_ca"])
    return context


def _configure(options: TlsServer, texts: Mapping[str, bytes], context: ssl.SSLContext) -> None:
    """Set the certificate, and everything else except what is required of clients."""
    context.minimum_version = _VERSIONS.get(options.min_version or "", ssl.TLSVersion.TLSv1_2)
    context.maximum_version = _VERSIONS.get(options.max_version or "", ssl.TLSVersion.TLSv1_3)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # A connection lasts for many scrapes, so that tickets to resume a session are not needed.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    if not options.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_ciphers(context, options)
    load_certificate(context, texts["cert"], texts["key"])


def _set_ciphers(context: ssl.SSLContext, options: TlsServer) -> None:
    curves = options.curve_preferences or ()
    if len(curves) == 1:
        context.set_ecdh_curve(CURVES[curves[0]])
    if options.only_newest:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    configured = [SUITES[name] for name in options.cipher_suites or () if name in SUITES]
    if not configured:
        return
    try:
        context.set_ciphers(":".join(configured))
    except ssl.SSLError:
        raise PemError("cipher_suites", "the TLS library supports none of them") from None
    available = {cipher["name"] for cipher in context.get_ciphers()}
    if missing := [name for name in configured if name not in available]:
        raise PemError("cipher_suites", f"the TLS library does not support {', '.join(missing)}")


def _set_client_auth(context: ssl.SSLContext, options: TlsServer, authorities: bytes) -> None:
    required = options.client_auth_type == "RequireAndVerifyClientCert"
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    if not options.has_client_ca:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    # Every certificate in the file is trusted, also that of an intermediate authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        with as_file(authorities, "client_ca") as path:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise PemError("client_ca", "has no usable certificate in PEM format") from None


def alternative_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Yield the subject alternative names (DNS, email, IP, URI) in Go's notation."""
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in ("DNS", "email", "URI"):
            yield value
        elif kind == "IP Address":
            try:
                yield str(ipaddress.ip_address(value.strip()))
            except ValueError:
                continue
