"""Who may read what podgpu serves: the web config, and the certificate that it names."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.errors import ConfigError
from config.schema import Config
from pipeline.component.findings import Finding, span
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.model import NS

_UNTIMED: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, for which `ssl` has no name: the time is held against `ctx.clock`."""

_ROUNDS: Final = 8
_FIX: Final = "mend the file or what it names, and mount its folder; podgpu check tells the same"
_RENEW_FIX: Final = "renew the certificate; podgpu takes a new one over by itself"


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What podgpu shows whoever connects.

    Attributes:
        certificate: DER.
        requires_client_certificate: whether whoever connects has to show one too.
        not_before: from when it holds, in seconds since the epoch; None if that can't be told.
        not_after: and until when.
    """

    certificate: bytes
    requires_client_certificate: bool
    not_before: float | None
    not_after: float | None


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Check `http.web_config`, where there is one."""
    path = ctx.config.http.web_config
    if path is None:
        return []
    check, place = CHECKS["http.web_config"], str(path)
    try:
        shown = await in_thread(lambda: read_identity(path))
    except ConfigError as error:
        return [
            check.failure(place, problem.render(error.origin), _FIX) for problem in error.problems
        ]
    if shown is None:
        return [check.ok(place, "good; without TLS")]
    return [_validity(shown, place, ctx.clock.now().wall_ns / NS)]


def _validity(shown: ServerIdentity, subject: str, now: float) -> Finding:
    check = CHECKS["http.web_config"]
    if shown.not_before is None or shown.not_after is None:
        return check.ok(subject, "good; how long its certificate holds can't be told")
    if now > shown.not_after:
        saw = f"its certificate has expired, {span(now - shown.not_after)} ago: clients refuse it"
        return check.failure(subject, saw, _RENEW_FIX)
    if now < shown.not_before:
        saw = f"its certificate holds in {span(shown.not_before - now)} only: clients refuse it"
        return check.failure(subject, saw, f"see the node's clock; {_RENEW_FIX}")
    return check.ok(subject, f"good; its certificate holds for {span(shown.not_after - now)}")


def identity_if_mutual_tls(config: Config) -> ServerIdentity | None:
    """Return what podgpu shows where whoever connects has to show a certificate. Blocking.

    None where that isn't asked for, or where the web config can't be used, which is told elsewhere.
    """
    if config.http.web_config is None:
        return None
    try:
        shown = read_identity(config.http.web_config)
    except ConfigError:
        return None
    return shown if shown is not None and shown.requires_client_certificate else None


def read_identity(path: Path) -> ServerIdentity | None:
    """Read a web config and all that it names; return what it shows, None without TLS. Blocking.

    Raises:
        ConfigError: something of it can't be used.
    """
    # Certificates and passwords have libraries of their own.
    from pipeline.http.access.web_config_reader import WebConfigReader  # noqa: PLC0415

    rules = WebConfigReader(path).reload()
    context = rules.context if rules is not None else None
    if context is None:
        return None
    wants = context.verify_mode is ssl.CERT_REQUIRED
    context.verify_mode = ssl.CERT_NONE
    certificate = _handshake_in_memory(context, _client()).getpeercert(binary_form=True) or b""
    try:
        told = _handshake_in_memory(context, _client(certificate)).getpeercert() or {}
    except ssl.SSLError:  # made for something else, as for a client
        told = {}
    dates = [told.get("notBefore"), told.get("notAfter")]
    begins, ends = (
        ssl.cert_time_to_seconds(each) if isinstance(each, str) else None for each in dates
    )
    return ServerIdentity(certificate, wants, begins, ends)


def _client(trusted: bytes = b"") -> ssl.SSLContext:
    """Return a client's context that trusts one certificate; without one it asks for no trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if trusted:
        context.load_verify_locations(cadata=trusted)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags = ssl.VerifyFlags(context.verify_flags | _UNTIMED)
    else:
        context.verify_mode = ssl.CERT_NONE
    return context


def _handshake_in_memory(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Shake hands in memory: the library alone takes a certificate apart for `ssl`.

    Raises:
        SSLError: one of them doesn't take the other.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(there, back, server_side=True)
    asking = client.wrap_bio(back, there)
    for _ in range(_ROUNDS):
        for each in (asking, serving):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return asking
