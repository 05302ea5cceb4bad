"""Makes messages of snapshots, and sends them."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from pipeline.contracts import SinkContext
from pipeline.delivery.contract import Outcome, Record, Rejected, Retry
from pipeline.model import Snapshot
from pipeline.warning import warn
from sinks.otlp.encoding.encoder import RECORD, Encoder
from sinks.otlp.options import Options
from sinks.otlp.transport.contract import Transport
from sinks.otlp.transport.credentials import Credentials, CredentialsError, system_certificates
from sinks.otlp.transport.environment import Settings, settle

_DROPPED: Final = "podgpu_sink_dropped_total"
_ERRORS: Final = "podgpu_sink_errors_total"
_WHO: Final = frozenset(("http_401", "http_403", "unauthenticated", "permission_denied"))
"""Refusals that a new token or certificate may end."""


class OtlpPush:
    """Sends readings to one receiver. Implements `pipeline.delivery.contract.PushSink`.

    Args:
        options: see `docs/sinks/otlp.md`.
        ctx: what the runtime lends.
        environ: the variables that fill in what the options leave out.
    """

    def __init__(
        self, options: Options, ctx: SinkContext, environ: Mapping[str, str] | None = None
    ) -> None:
        self._options = options
        self._ctx = ctx
        self._environ = os.environ if environ is None else environ
        self._settings: Settings | None = None
        self._encoder: Encoder | None = None
        self._credentials: Credentials | None = None
        self._transport: Transport | None = None
        self._told_ns: int | None = None
        self._left_out: dict[str, int] = {}
        self._steps = 0

    async def __aenter__(self) -> Self:
        """Find out where messages go. The connection is made with the first one.

        Raises:
            PermanentError: a variable or an option has a value that can't be used.
        """
        settings = self._settings
        if settings is None:
            settings = self._settings = settle(self._options, self._environ)
            for hint in settings.hints:
                warn(self._ctx, "%s", hint)
            self._encoder = Encoder(
                self._ctx.node,
                self._ctx.plan,
                names=self._options.names,
                containers=self._options.containers,
                resource=settings.resource,
                temporality=settings.temporality,
                # So that a message that is too large can be halved.
                most_bytes=min(RECORD, self._options.max_message_size // 2),
            )
        secure, system = settings.endpoint.secure, None
        if secure and settings.protocol == "grpc":
            system = await asyncio.to_thread(system_certificates)
        self._credentials = Credentials(
            settings.tls if secure else None,
            settings.token_file,
            self._ctx.clock,
            system,
            settings.tls_names,
        )
        self._transport = (await asyncio.to_thread(_maker, settings, self._ctx))()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Give the connection back."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    def encode(self, snapshot: Snapshot) -> Iterable[Record]:
        """Return a snapshot's fresh readings, and now and then podgpu's own metrics."""
        encoder = self._encoder
        if encoder is None:
            raise RuntimeError("encode() outside of the sink's context")
        records = encoder.encode(snapshot)
        self._count("not_finite", encoder.not_finite)
        self._count("doubled", encoder.doubled)
        if (steps := encoder.clock_steps - self._steps) > 0:
            self._steps += steps
            self._ctx.meter.add(_ERRORS, steps, operation="clock", reason="step")
        every_ns, now = self._options.telemetry_interval.ns, self._ctx.clock.now()
        if every_ns and (self._told_ns is None or now.mono_ns - self._told_ns >= every_ns):
            self._told_ns = now.mono_ns
            own = encoder.telemetry(now, self._ctx.telemetry())
            if own is not None:
                records = [*records, own]
        return records

    def _count(self, reason: str, total: int) -> None:
        """Count what the encoder has left out."""
        lost = total - self._left_out.get(reason, 0)
        if lost:
            self._left_out[reason] = total
            self._ctx.meter.add(_DROPPED, lost, reason=reason)

    async def send(self, records: Sequence[Record]) -> Outcome:
        """Send records as one message.

        Where the receiver doesn't know us, files are read anew and the message is sent once more.
        """
        message = b"".join(record.data for record in records)
        outcome = await self._send(message, anew=False)
        if isinstance(outcome, Rejected) and outcome.reason in _WHO and self._held.files:
            outcome = await self._send(message, anew=True)
        return outcome

    @property
    def _held(self) -> Credentials:
        if self._credentials is None:
            raise RuntimeError("send() outside of the sink's context")
        return self._credentials

    async def _send(self, message: bytes, *, anew: bool) -> Outcome:
        try:
            material = await self._held.get(anew=anew)
        except CredentialsError as error:
            return Retry("credentials", str(error))
        if self._transport is None:
            raise RuntimeError("send() outside of the sink's context")
        return await self._transport.send(message, material)


def _maker(settings: Settings, ctx: SinkContext) -> Callable[[], Transport]:
    """Load the library of the protocol, and no other. Blocking: it is read from the disk."""
    if settings.protocol == "grpc":
        from sinks.otlp.transport.rpc import GrpcTransport  # noqa: PLC0415

        return lambda: GrpcTransport(settings)
    from sinks.otlp.transport.http import HttpTransport  # noqa: PLC0415

    return lambda: HttpTransport(settings, ctx.clock)
