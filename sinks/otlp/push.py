"""Makes messages of snapshots, and sends them."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from pipeline.changes.change_feed import ChangeTracker
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.delivery.contract import Acked, Outcome, Record, Rejected, Retry, TooLarge
from pipeline.model import Snapshot
from sinks.otlp.circuit_breaker import CircuitBreaker
from sinks.otlp.encoding.encoder import RECORD_BYTES, Encoder
from sinks.otlp.options import Options
from sinks.otlp.signal_client import EMPTY_MESSAGE, SignalClient
from sinks.otlp.signals import LOGS, METRICS, SIGNALS
from sinks.otlp.transport.settings import Settings, resolve_log_settings, resolve_settings

_DROPPED: Final = "podgpu_sink_dropped_total"
_ERRORS: Final = "podgpu_sink_errors_total"
_KEPT: Final = "encoder"
"""What is kept over a reload: the encoder, which knows what was told."""

_NOT_WANTED: Final = "not_wanted"
"""Why records are rejected that waited in the queue: of a signal that isn't sent, or not known."""


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
        self._changes = ChangeTracker(ctx.restart_state, ctx.latest())
        self._circuit_breaker = CircuitBreaker()
        self._settings: tuple[Settings, ...] = ()
        self._encoder: Encoder | None = None
        self._clients: dict[int, SignalClient] = {}
        self._open = contextlib.AsyncExitStack()
        self._telemetry_sent_ns: int | None = None
        self._left_out: dict[str, int] = {}
        self._steps = 0

    async def __aenter__(self) -> Self:
        """Find out where messages go. The connection is made with the first one.

        Raises:
            PermanentError: a variable or an option has a value that can't be used.
        """
        if not self._settings:
            self._settings = self._resolve_settings()
        if self._encoder is None or self._ctx.restart_state.get(_KEPT) is not self._encoder:
            self._use_encoder(self._make_encoder(self._settings[0]))
        async with contextlib.AsyncExitStack() as stack:
            for settings in self._settings:
                way = await stack.enter_async_context(SignalClient(settings, self._ctx.clock))
                self._clients[settings.signal.number] = way
            self._open = stack.pop_all()
        return self

    def _resolve_settings(self) -> tuple[Settings, ...]:
        """Find out what holds for each signal; metrics come first."""
        settings = resolve_settings(self._options, self._environ)
        logs = resolve_log_settings(self._options, self._environ) if self._options.logs else None
        hints = [*settings.hints, *(logs.hints if logs is not None else ())]
        for hint in dict.fromkeys(hints):
            warn(self._ctx, "%s", hint)
        if self._options.logs and logs is None:
            self._ctx.log.info(
                "nothing says where log records go, so none are sent; %s is of metrics alone",
                settings.endpoint.display_address,
            )
        return (settings,) if logs is None else (settings, logs)

    def _make_encoder(self, settings: Settings) -> Encoder:
        """Return an encoder that takes the place of the one before, whoever used that."""
        former = self._ctx.restart_state.get(_KEPT)
        # A credential that is exchanged makes no other receiver.
        headers = {k: v for k, v in settings.headers.items() if k != "authorization"}
        return Encoder(
            self._ctx.node,
            self._ctx.plan,
            names=self._options.names,
            containers=self._options.containers,
            resource=settings.resource,
            temporality=settings.temporality,
            # So that a message that is too large can be halved.
            most_bytes=min(RECORD_BYTES, self._options.max_message_size // 2),
            receiver=(settings.endpoint.address, headers),
            previous=former if isinstance(former, Encoder) else None,
        )

    def _use_encoder(self, encoder: Encoder) -> None:
        self._encoder = self._ctx.restart_state[_KEPT] = encoder
        self._left_out.clear()
        self._steps = encoder.clock_steps

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Give the connections back."""
        self._clients.clear()
        await self._open.aclose()

    def encode(self, snapshot: Snapshot) -> Iterable[Record]:
        """Return a snapshot's fresh readings, now and then podgpu's own metrics, and what happened.

        Log records come last.
        """
        encoder = self._encoder
        if encoder is None:
            raise RuntimeError("encode() outside of the sink's context")
        records = list(encoder.encode(snapshot))
        self._count("not_finite", encoder.not_finite)
        self._count("doubled", encoder.duplicates)
        if (steps := encoder.clock_steps - self._steps) > 0:
            self._steps += steps
            self._ctx.meter.add(_ERRORS, steps, operation="clock", reason="step")
        every_ns, now = self._options.telemetry_interval.ns, self._ctx.clock.now()
        if every_ns and (
            self._telemetry_sent_ns is None or now.mono_ns - self._telemetry_sent_ns >= every_ns
        ):
            self._telemetry_sent_ns = now.mono_ns
            own = encoder.telemetry(now, self._ctx.telemetry())
            if own is not None:
                records.append(own)
        # Looked at whether it is wanted or not: what isn't told now isn't told later.
        news = self._changes.update(snapshot)
        if len(self._settings) > 1:
            records += encoder.events(snapshot, news)
            if missed := news.missed_holdings + news.missed_errors:
                self._ctx.meter.add(_DROPPED, missed, reason="missed")
        return records

    def _count(self, reason: str, total: int) -> None:
        """Count what the encoder has left out."""
        lost = total - self._left_out.get(reason, 0)
        if lost:
            self._left_out[reason] = total
            self._ctx.meter.add(_DROPPED, lost, reason=reason)

    async def send(self, records: Sequence[Record]) -> Outcome:
        """Send records as one message, by the way of their signal."""
        number = records[0].signal
        message = b"".join(record.data for record in records)
        if number == METRICS.number:
            return await self._client(number).send(message)
        if number not in self._clients:
            known = SIGNALS.get(number)
            what = known.name if known is not None else "records of a newer podgpu"
            text = f"{what} that waited in the queue are not to be sent any more"
            return Rejected(_NOT_WANTED, text)
        return await self._send_logs(message)

    def _client(self, number: int) -> SignalClient:
        if number not in self._clients:
            raise RuntimeError("send() outside of the sink's context")
        return self._clients[number]

    async def _send_logs(self, message: bytes) -> Outcome:
        """Send log records, unless it is known what becomes of them."""
        clock, admission = self._ctx.clock, self._circuit_breaker
        if (refusal := admission.rejection(clock.now().mono_ns)) is not None:
            return refusal
        outcome = await self._client(LOGS.number).send(message)
        if isinstance(outcome, Retry):
            metrics = await self._client(METRICS.number).send(EMPTY_MESSAGE)
            now_ns = clock.now().mono_ns
            return admission.on_retry(outcome, now_ns, metrics=not isinstance(metrics, Retry))
        if isinstance(outcome, Acked | TooLarge) and admission.on_accepted():
            self._ctx.log.info("the receiver takes log records again")
        return admission.on_outcome(outcome, clock.now().mono_ns)
