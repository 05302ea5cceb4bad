"""What `podgpu doctor` looks at for the otlp sink: the receiver, sent nothing at all."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pipeline.base.clock import Clock
from pipeline.base.errors import PermanentError
from pipeline.component.findings import Finding
from pipeline.delivery.contract import Acked, Outcome, Rejected, Retry, TooLarge
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext
from sinks.otlp.options import Options
from sinks.otlp.signal_client import EMPTY_MESSAGE, SignalClient
from sinks.otlp.transport.settings import Settings, resolve_settings

_SECONDS: Final = 10.0
_FIXES: Final[Mapping[str, str]] = {
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
        settings = resolve_settings(options, ctx.environ)
    except PermanentError as error:
        mend = "mend the option or the variable that is named"
        return [check.failure(options.endpoint or "endpoint", str(error), mend)]
    settings = replace(settings, timeout=min(settings.timeout, _SECONDS))
    place = settings.endpoint.display_address
    outcome = await _sent(settings, ctx.clock)
    match outcome:
        case Acked():
            return [check.ok(place, f"took an empty message by {settings.protocol}")]
        case Rejected(reason, message):
            return [check.failure(place, message, _FIXES.get(reason, _USUAL))]
        case Retry(reason, message):
            return [check.failure(place, message, _FIXES.get(reason, _USUAL))]
        case TooLarge(message):
            return [check.failure(place, message, _USUAL)]


async def _sent(settings: Settings, clock: Clock) -> Outcome:
    """Send the empty message as the sink sends its own."""
    async with SignalClient(settings, clock) as way:
        return await way.send(EMPTY_MESSAGE)
