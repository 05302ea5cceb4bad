"""Create the sink `jsonl`, with or without a queue."""

from typing import Final

from config.value_types import Duration
from pipeline.component.contracts import Sink, SinkContext
from pipeline.delivery.options import RetryOptions
from pipeline.delivery.queued_sink import QueuedSink
from sinks.jsonl.options import Options
from sinks.jsonl.queued_lines import LinesPush
from sinks.jsonl.sink import JsonLinesSink

_RETRY: Final = RetryOptions(initial=Duration.parse("1s"), max=Duration.parse("10s"))
_MAX_LINE: Final = 16 << 20
"""Maximum size of a line in bytes; podgpu does not write longer ones."""


def make_sink(options: Options, ctx: SinkContext) -> Sink:
    """Return a sink that drops lines that can't be written now, or one that queues them.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: context of the sink, from the runtime.
    """
    if options.queue is None:
        return JsonLinesSink(options, ctx)
    push = LinesPush(options, ctx)
    return QueuedSink(push, options.queue, _RETRY, ctx, kind="jsonl", most_bytes=_MAX_LINE)
