"""Checks of `podgpu doctor` for the sink `otlp`. They send the receiver an empty message."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pipeline.base.errors import PermanentError
from pipeline.component.findings import FAILS, Check, Finding
from pipeline.delivery.contract import Acked, TooLarge
from pipeline.diagnostics.context import DoctorContext
from sinks.otlp.options import Options
from sinks.otlp.signal_client import EMPTY_MESSAGE, SignalClient
from sinks.otlp.transport.settings import resolve_settings

_MAX_TIMEOUT: Final = 10.0
_FIXES: Final[Mapping[str, str]] = {
    "unauthenticated": "check headers, bearer_token_file and the client certificate",
    "http_401": "check headers, bearer_token_file and the client certificate",
    "permission_denied": "allow podgpu in the receiver: check headers, token and certificate",
    "http_403": "allow podgpu in the receiver: check headers, token and certificate",
    "credentials": "mount the named file, and check that it is complete",
}
_DEFAULT_FIX: Final = (
    "check that the collector runs and has a receiver for OTLP metrics at this address and "
    "protocol (gRPC 4317, HTTP 4318), and that no NetworkPolicy blocks it"
)


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `otlp.receiver`."""
    check = Check("otlp.receiver", FAILS)
    try:
        settings = resolve_settings(options, ctx.environ)
    except PermanentError as error:
        fix = "fix the named option or variable"
        return [check.failure(options.endpoint or "endpoint", str(error), fix)]
    settings = replace(settings, timeout=min(settings.timeout, _MAX_TIMEOUT))
    address = settings.endpoint.display_address
    # In the same way as the sink sends its messages.
    async with SignalClient(settings, ctx.clock) as client:
        outcome = await client.send(EMPTY_MESSAGE)
    if isinstance(outcome, Acked):
        return [check.ok(address, f"accepted an empty message over {settings.protocol}")]
    reason = "" if isinstance(outcome, TooLarge) else outcome.reason
    return [check.failure(address, outcome.message, _FIXES.get(reason, _DEFAULT_FIX))]
