"""Check `http.web_config`: the web configuration file, and the certificate that it names."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.errors import ConfigError
from config.schema import Config
from pipeline.component.findings import FAILS, Check, Finding, span
from pipeline.diagnostics.context import DoctorContext
from pipeline.model import NS

_CHECK: Final = Check("http.web_config", FAILS)

_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which `ssl` lacks. `_validity` uses `ctx.clock` instead."""

_ROUNDS: Final = 8
_FIX: Final = (
    "fix the file or the files that it names, and mount its folder; podgpu check reports the same"
)
_RENEW_FIX: Final = "renew the certificate; podgpu loads the new one automatically"


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The TLS identity that podgpu presents to clients.

    Attributes:
        certificate: the certificate, in DER.
        requires_client_certificate: whether clients must present a certificate too.
        validity: start and end of the certificate's validity, in seconds of Unix time; None if
            unknown.
    """

    certificate: bytes
    requires_client_certificate: bool
    validity: tuple[float, float] | None


def examine(ctx: DoctorContext) -> list[Finding]:
    """Run the check `http.web_config`; no finding if no web configuration file is set."""
    path = ctx.config.http.web_config
    if path is None:
        return []
    place = str(path)
    try:
        identity = read_identity(path)
    except ConfigError as error:
        return [
            _CHECK.failure(place, problem.render(error.origin), _FIX) for problem in error.problems
        ]
    if identity is None:
        return [_CHECK.ok(place, "valid; without TLS")]
    return [_validity(identity, place, ctx.clock.now().wall_ns / NS)]


def _validity(identity: ServerIdentity, subject: str, now: float) -> Finding:
    if identity.validity is None:
        return _CHECK.ok(subject, "valid; the validity period of its certificate is unknown")
    begins, ends = identity.validity
    if now > ends:
        observed = f"its certificate has expired {span(now - ends)} ago: clients refuse it"
        return _CHECK.failure(subject, observed, _RENEW_FIX)
    if now < begins:
        wait = span(begins - now)
        observed = f"its certificate becomes valid in {wait}: until then clients refuse it"
        return _CHECK.failure(subject, observed, f"check the node's clock; {_RENEW_FIX}")
    return _CHECK.ok(subject, f"valid; its certificate is valid for {span(ends - now)}")


def identity_if_mutual_tls(config: Config) -> ServerIdentity | None:
    """Return podgpu's TLS identity if clients must present a certificate. Blocking.

    None if clients need no certificate, or if the web configuration file is missing or invalid. The
    check `http.web_config` reports an invalid file.
    """
    if config.http.web_config is None:
        return None
    try:
        identity = read_identity(config.http.web_config)
    except ConfigError:
        return None
    return identity if identity is not None and identity.requires_client_certificate else None


def read_identity(path: Path) -> ServerIdentity | None:
    """Read a web configuration file and all files that it names. Blocking.

    Returns:
        The TLS identity; None if the file does not configure TLS.

    Raises:
        ConfigError: the file, or a file that it names, cannot be read or is invalid.
    """
    # This imports libraries for certificates and passwords.
    from pipeline.http.access.web_config_reader import WebConfigReader  # noqa: PLC0415

    rules = WebConfigReader(path).reload()
    context = rules.context if rules is not None else None
    if context is None:
        return None
    wants = context.verify_mode is ssl.CERT_REQUIRED
    context.verify_mode = ssl.CERT_NONE
    certificate = _handshake_in_memory(context, _client()).getpeercert(binary_form=True) or b""
    try:
        fields = _handshake_in_memory(context, _client(certificate)).getpeercert() or {}
    except ssl.SSLError:  # not a server certificate, for example one for clients
        fields = {}
    validity, dates = None, (fields.get("notBefore"), fields.get("notAfter"))
    if isinstance(dates[0], str) and isinstance(dates[1], str):
        validity = ssl.cert_time_to_seconds(dates[0]), ssl.cert_time_to_seconds(dates[1])
    return ServerIdentity(certificate, wants, validity)


def _client(trusted: bytes = b"") -> ssl.SSLContext:
    """Return the TLS context of a client that trusts one certificate, or verifies nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if trusted:
        context.load_verify_locations(cadata=trusted)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
    else:
        context.verify_mode = ssl.CERT_NONE
    return context


def _handshake_in_memory(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Do a TLS handshake in memory, and return the client's side, with the server's certificate.

    Raises:
        SSLError: one side refuses the other.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(there, back, server_side=True)
    connecting = client.wrap_bio(back, there)
    for _ in range(_ROUNDS):
        for each in (connecting, serving):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return connecting
