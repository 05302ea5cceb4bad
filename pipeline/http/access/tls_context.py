"""What a web config says of TLS, as a context of the TLS library. Blocking: it runs in a thread."""

import ipaddress
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.http.access.cipher_names import CURVES, SUITES
from pipeline.http.access.web_config_schema import TlsServer
from pipeline.net.pem import PemError, as_file, identify

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class BrokenError(Exception):
    """A part of `tls_server_config` can't be used.

    Attributes:
        key: which.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def make_context(options: TlsServer, texts: Mapping[str, bytes]) -> ssl.SSLContext:
    """Make a server's context.

    Args:
        options: checked.
        texts: what `cert`, `key` and `client_ca` hold, inline or in files: PEM.

    Raises:
        BrokenError: the library refuses some of it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS.get(options.min_version or "", ssl.TLSVersion.TLSv1_2)
    context.maximum_version = _VERSIONS.get(options.max_version or "", ssl.TLSVersion.TLSv1_3)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # A connection lasts for many scrapes: tickets to resume it would be made for nobody.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    if not options.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _choose(context, options)
    _identify(context, options, texts)
    if options.verifies:
        _verify(context, options, texts)
    return context


def _choose(context: ssl.SSLContext, options: TlsServer) -> None:
    curves = options.curve_preferences or ()
    if len(curves) == 1:
        context.set_ecdh_curve(CURVES[curves[0]])
    if options.only_newest:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    wanted = [SUITES[name] for name in options.cipher_suites or () if name in SUITES]
    if not wanted:
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError:
        raise BrokenError("cipher_suites", "the TLS library has none of them") from None
    there = {cipher["name"] for cipher in context.get_ciphers()}
    if missing := [name for name in wanted if name not in there]:
        raise BrokenError("cipher_suites", f"the TLS library has no {', '.join(missing)}")


def _identify(context: ssl.SSLContext, options: TlsServer, texts: Mapping[str, bytes]) -> None:
    try:
        identify(context, texts["cert"], texts["key"])
    except PemError as error:
        raise BrokenError(_option_name(options, error.part), f"this {error}") from None


def _verify(context: ssl.SSLContext, options: TlsServer, texts: Mapping[str, bytes]) -> None:
    required = options.client_auth_type == "RequireAndVerifyClientCert"
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    # Whatever is in the file is trusted, an authority that another one has signed too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    key = _option_name(options, "client_ca")
    try:
        with as_file(texts["client_ca"], "ca") as path:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise BrokenError(key, "this has no certificate in PEM that can be used") from None
    except PemError as error:
        raise BrokenError(key, f"this {error}") from None


def _option_name(options: TlsServer, name: str) -> str:
    return f"{name}_file" if getattr(options, f"{name}_file") else name


def alternative_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Yield the subject's alternative names: DNS, e-mail, IP, URI, as Go writes them."""
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in ("DNS", "email", "URI"):
            yield value
        elif kind == "IP Address":
            try:
                yield str(ipaddress.ip_address(value.strip()))
            except ValueError:
                continue
