"""The sink `otlp`: encode snapshots as OTLP messages, queue them, and send them."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from pipeline.changes.unreported_changes import ChangeTracker
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.delivery.contract import Acked, Outcome, Record, Rejected, Retry, TooLarge
from pipeline.delivery.queued_sink import QueuedSink
from pipeline.model import Snapshot
from sinks.otlp.circuit_breaker import CircuitBreaker
from sinks.otlp.encoding.encoder import RECORD_BYTES, Encoder
from sinks.otlp.options import Options
from sinks.otlp.signal_client import EMPTY_MESSAGE, SignalClient
from sinks.otlp.signals import LOGS, METRICS, SIGNALS
from sinks.otlp.transport.settings import Settings, resolve_log_settings, resolve_settings

_DROPPED: Final = "podgpu_sink_dropped_total"
_ERRORS: Final = "podgpu_sink_errors_total"
_ENCODER: Final = "encoder"
"""Key in the restart state: the encoder survives a reload, since it knows what was sent."""

_NOT_WANTED: Final = "not_wanted"
"""Rejection reason of queued records whose signal is disabled or unknown."""


class OtlpSink(QueuedSink):
    """Sends readings to an OpenTelemetry receiver, and queues them while it accepts none.

    Args:
        options: see `docs/sinks/otlp.md`.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        super().__init__(
            OtlpPush(options, ctx),
            options.queue,
            options.retry,
            ctx,
            kind="otlp",
            most_bytes=options.max_message_size,
        )


class OtlpPush:
    """Sends readings to one receiver. Implements `pipeline.delivery.contract.PushSink`.

    Args:
        options: see `docs/sinks/otlp.md`.
        ctx: context of the sink, from the runtime.
        environ: environment variables, for options that are not configured.
    """

    def __init__(
        self, options: Options, ctx: SinkContext, environ: Mapping[str, str] | None = None
    ) -> None:
        self._options = options
        self._ctx = ctx
        self._environ = os.environ if environ is None else environ
        self._changes = ChangeTracker(ctx.restart_state, ctx.latest())
        self._circuit_breaker = CircuitBreaker()
        self._settings: tuple[Settings, ...] = ()
        self._encoder: Encoder | None = None
        self._clients: dict[int, SignalClient] = {}
        self._exit_stack = contextlib.AsyncExitStack()
        self._telemetry_sent_ns: int | None = None

    async def __aenter__(self) -> Self:
        """Resolve the settings. The first message opens the connection.

        Raises:
            PermanentError: a variable or an option has an invalid value.
        """
        if not self._settings:
            self._settings = self._resolve_settings()
        if self._encoder is None or self._ctx.restart_state.get(_ENCODER) is not self._encoder:
            self._encoder = self._make_encoder(self._settings[0])
            self._ctx.restart_state[_ENCODER] = self._encoder
        async with contextlib.AsyncExitStack() as stack:
            for settings in self._settings:
                client = await stack.enter_async_context(SignalClient(settings, self._ctx.clock))
                self._clients[settings.signal.number] = client
            self._exit_stack = stack.pop_all()
        return self

    def _resolve_settings(self) -> tuple[Settings, ...]:
        """Return the settings of each signal, metrics first."""
        settings = resolve_settings(self._options, self._environ)
        logs = resolve_log_settings(self._options, self._environ) if self._options.logs else None
        hints = [*settings.hints, *(logs.hints if logs is not None else ())]
        for hint in dict.fromkeys(hints):
            warn(self._ctx, "%s", hint)
        if self._options.logs and logs is None:
            self._ctx.log.info(
                "no endpoint for log records is configured, so podgpu sends none; "
                "%s is for metrics only",
                settings.endpoint.display_address,
            )
        return (settings,) if logs is None else (settings, logs)

    def _make_encoder(self, settings: Settings) -> Encoder:
        """Return a new encoder that continues the series of the previous one."""
        previous = self._ctx.restart_state.get(_ENCODER)
        # A changed credential does not mean another receiver.
        headers = {k: v for k, v in settings.headers.items() if k != "authorization"}
        return Encoder(
            self._ctx.node,
            self._ctx.plan,
            names=self._options.names,
            containers=self._options.containers,
            resource=settings.resource,
            temporality=settings.temporality,
            # So that a message that is too large can be split in half.
            most_bytes=min(RECORD_BYTES, self._options.max_message_size // 2),
            receiver=(settings.endpoint.address, headers),
            previous=previous if isinstance(previous, Encoder) else None,
        )

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        self._clients.clear()
        await self._exit_stack.aclose()

    def encode(self, snapshot: Snapshot) -> Iterable[Record]:
        """Return the records of a snapshot: readings and usage, then log records of new events.

        When they are due, records of podgpu's own metrics come in between.
        """
        encoder = self._encoder
        if encoder is None:
            raise RuntimeError("encode() outside of the sink's context")
        dropped, steps = _dropped(encoder), encoder.timeline.steps
        records = list(encoder.encode(snapshot))
        for reason, count in (_dropped(encoder) - dropped).items():
            self._ctx.meter.add(_DROPPED, count, reason=reason)
        every_ns, now = self._options.telemetry_interval.ns, self._ctx.clock.now()
        if every_ns and (
            self._telemetry_sent_ns is None or now.mono_ns - self._telemetry_sent_ns >= every_ns
        ):
            self._telemetry_sent_ns = now.mono_ns
            telemetry = encoder.telemetry(now, self._ctx.telemetry())
            if telemetry is not None:
                records.append(telemetry)
        if (new_steps := encoder.timeline.steps - steps) > 0:
            self._ctx.meter.add(_ERRORS, new_steps, operation="clock", reason="step")
        # Update it even if log records are disabled: enabling them must not report old events.
        changes = self._changes.update(snapshot)
        if len(self._settings) > 1:
            records += encoder.events.records(snapshot, changes)
            if missed := changes.missed_holdings + changes.missed_errors:
                self._ctx.meter.add(_DROPPED, missed, reason="missed")
        return records

    async def send(self, records: Sequence[Record]) -> Outcome:
        """Send records of one signal as one message, with the client of that signal.

        Records of a signal that is disabled or unknown are rejected.
        """
        number = records[0].signal
        message = b"".join(record.data for record in records)
        if number != METRICS.number and number not in self._clients:
            signal = SIGNALS.get(number)
            what = signal.name if signal is not None else "records of a newer podgpu version"
            text = f"{what} in the queue are not sent: this podgpu is not configured to send them"
            return Rejected(_NOT_WANTED, text)
        if number == LOGS.number:
            return await self._send_logs(message)
        return await self._clients[number].send(message)

    async def _send_logs(self, message: bytes) -> Outcome:
        """Send log records, unless the circuit breaker is open."""
        clock, breaker = self._ctx.clock, self._circuit_breaker
        if (refusal := breaker.rejection(clock.now().mono_ns)) is not None:
            return refusal
        outcome = await self._clients[LOGS.number].send(message)
        if isinstance(outcome, Retry):
            metrics = await self._clients[METRICS.number].send(EMPTY_MESSAGE)
            now_ns = clock.now().mono_ns
            return breaker.on_retry(outcome, now_ns, metrics=not isinstance(metrics, Retry))
        if isinstance(outcome, Acked | TooLarge) and breaker.on_accepted():
            self._ctx.log.info("the receiver accepts log records again")
        return breaker.on_outcome(outcome, clock.now().mono_ns)


def _dropped(encoder: Encoder) -> Counter[str]:
    """Return how many readings the encoder has left out, by reason."""
    return Counter(not_finite=encoder.not_finite, doubled=encoder.duplicates)
