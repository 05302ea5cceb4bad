"""Makes messages of snapshots, and sends them."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from pipeline.changes.change_feed import Following
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.delivery.contract import Acked, Outcome, Record, Rejected, Retry, TooLarge
from pipeline.model import Snapshot
from sinks.otlp.circuit_breaker import Admission
from sinks.otlp.encoding.encoder import RECORD, Encoder
from sinks.otlp.options import Options
from sinks.otlp.signal_client import EMPTY, Way
from sinks.otlp.signals import LOGS, METRICS, SIGNALS
from sinks.otlp.transport.settings import Settings, settle, settle_logs

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
        self._following = Following(ctx.kept, ctx.latest())
        self._admission = Admission()
        self._settings: tuple[Settings, ...] = ()
        self._encoder: Encoder | None = None
        self._ways: dict[int, Way] = {}
        self._open = contextlib.AsyncExitStack()
        self._told_ns: int | None = None
        self._left_out: dict[str, int] = {}
        self._steps = 0

    async def __aenter__(self) -> Self:
        """Find out where messages go. The connection is made with the first one.

        Raises:
            PermanentError: a variable or an option has a value that can't be used.
        """
        if not self._settings:
            self._settings = self._settle()
        if self._encoder is None or self._ctx.kept.get(_KEPT) is not self._encoder:
            self._encode_with(self._made(self._settings[0]))
        async with contextlib.AsyncExitStack() as stack:
            for settings in self._settings:
                way = await stack.enter_async_context(Way(settings, self._ctx.clock))
                self._ways[settings.signal.number] = way
            self._open = stack.pop_all()
        return self

    def _settle(self) -> tuple[Settings, ...]:
        """Find out what holds for each signal; metrics come first."""
        settings = settle(self._options, self._environ)
        logs = settle_logs(self._options, self._environ) if self._options.logs else None
        hints = [*settings.hints, *(logs.hints if logs is not None else ())]
        for hint in dict.fromkeys(hints):
            warn(self._ctx, "%s", hint)
        if self._options.logs and logs is None:
            self._ctx.log.info(
                "nothing says where log records go, so none are sent; %s is of metrics alone",
                settings.endpoint.place,
            )
        return (settings,) if logs is None else (settings, logs)

    def _made(self, settings: Settings) -> Encoder:
        """Return an encoder that takes the place of the one before, whoever used that."""
        former = self._ctx.kept.get(_KEPT)
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
            most_bytes=min(RECORD, self._options.max_message_size // 2),
            receiver=(settings.endpoint.address, headers),
            former=former if isinstance(former, Encoder) else None,
        )

    def _encode_with(self, encoder: Encoder) -> None:
        self._encoder = self._ctx.kept[_KEPT] = encoder
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
        self._ways.clear()
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
        self._count("doubled", encoder.doubled)
        if (steps := encoder.clock_steps - self._steps) > 0:
            self._steps += steps
            self._ctx.meter.add(_ERRORS, steps, operation="clock", reason="step")
        every_ns, now = self._options.telemetry_interval.ns, self._ctx.clock.now()
        if every_ns and (self._told_ns is None or now.mono_ns - self._told_ns >= every_ns):
            self._told_ns = now.mono_ns
            own = encoder.telemetry(now, self._ctx.telemetry())
            if own is not None:
                records.append(own)
        # Looked at whether it is wanted or not: what isn't told now isn't told later.
        news = self._following.look(snapshot)
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
            return await self._way(number).send(message)
        if number not in self._ways:
            known = SIGNALS.get(number)
            what = known.name if known is not None else "records of a newer podgpu"
            text = f"{what} that waited in the queue are not to be sent any more"
            return Rejected(_NOT_WANTED, text)
        return await self._send_logs(message)

    def _way(self, number: int) -> Way:
        if number not in self._ways:
            raise RuntimeError("send() outside of the sink's context")
        return self._ways[number]

    async def _send_logs(self, message: bytes) -> Outcome:
        """Send log records, unless it is known what becomes of them."""
        clock, admission = self._ctx.clock, self._admission
        if (refusal := admission.closed(clock.now().mono_ns)) is not None:
            return refusal
        outcome = await self._way(LOGS.number).send(message)
        if isinstance(outcome, Retry):
            metrics = await self._way(METRICS.number).send(EMPTY)
            now_ns = clock.now().mono_ns
            return admission.waits(outcome, now_ns, metrics=not isinstance(metrics, Retry))
        if isinstance(outcome, Acked | TooLarge) and admission.taken():
            self._ctx.log.info("the receiver takes log records again")
        return admission.answered(outcome, clock.now().mono_ns)
