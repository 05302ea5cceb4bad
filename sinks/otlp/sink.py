"""The sink `otlp`."""

from pipeline.component.contracts import SinkContext
from pipeline.delivery.queued_sink import QueuedSink
from sinks.otlp.options import Options
from sinks.otlp.push import OtlpPush


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
