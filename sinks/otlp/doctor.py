"""What `podgpu doctor` looks at for the otlp sink: the receiver, sent nothing at all."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from pipeline.clock import Clock
from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from pipeline.doctor.checks import CHECKS
from pipeline.doctor.context import DoctorContext
from pipeline.doctor.findings import Finding
from pipeline.errors import PermanentError
from sinks.otlp.options import Options
from sinks.otlp.transport.contract import Transport
from sinks.otlp.transport.credentials import Credentials, CredentialsError, system_certificates
from sinks.otlp.transport.environment import Settings, settle

_EMPTY: Final = b""
"""An ExportMetricsServiceRequest without a point, which every receiver takes: so the OTLP
specification 1.11 has it of empty requests."""

_SECONDS: Final = 10.0
_MENDS: Final[Mapping[str, str]] = {
    "unauthenticated": "see headers, bearer_token_file and the client certificate",
    "http_401": "see headers, bearer_token_file and the client certificate",
    "permission_denied": "let the receiver admit podgpu: see headers, token and certificate",
    "http_403": "let the receiver admit podgpu: see headers, token and certificate",
    "credentials": "mount the file that is named, and see that it is whole",
}
_USUAL: Final = (
    "see that the collector runs and has a receiver of OTLP metrics at this address and protocol "
    "(gRPC 4317, HTTP 4318), and that no NetworkPolicy is in between"
)


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `otlp.receiver`."""
    check = CHECKS["otlp.receiver"]
    try:
        settings = settle(options, ctx.environ)
    except PermanentError as error:
        mend = "mend the option or the variable that is named"
        return [check.failure(options.endpoint or "endpoint", str(error), mend)]
    settings = replace(settings, timeout=min(settings.timeout, _SECONDS))
    place = settings.endpoint.place
    outcome = await _sent(settings, ctx.clock)
    match outcome:
        case Acked():
            return [check.ok(place, f"took an empty message by {settings.protocol}")]
        case Rejected(reason, message):
            return [check.failure(place, message, _MENDS.get(reason, _USUAL))]
        case Retry(reason, message):
            return [check.failure(place, message, _MENDS.get(reason, _USUAL))]
        case TooLarge(message):
            return [check.failure(place, message, _USUAL)]


async def _sent(settings: Settings, clock: Clock) -> Outcome:
    """Send the empty message as the sink sends its own."""
    secure = settings.endpoint.secure
    system = None
    if secure and settings.protocol == "grpc":
        system = await asyncio.to_thread(system_certificates)
    tls = settings.tls if secure else None
    credentials = Credentials(tls, settings.token_file, clock, system, settings.tls_names)
    try:
        material = await credentials.get()
    except CredentialsError as error:
        return Retry("credentials", str(error))
    transport = (await asyncio.to_thread(_maker, settings, clock))()
    try:
        return await transport.send(_EMPTY, material)
    finally:
        await transport.close()


def _maker(settings: Settings, clock: Clock) -> Callable[[], Transport]:
    """Load the library of the protocol, and no other. Blocking."""
    if settings.protocol == "grpc":
        from sinks.otlp.transport.rpc import GrpcTransport  # noqa: PLC0415

        return partial(GrpcTransport, settings)
    from sinks.otlp.transport.http import HttpTransport  # noqa: PLC0415

    return partial(HttpTransport, settings, clock)
