"""Which of the two a sink `jsonl` is."""

from typing import Final

from config.value_types import Duration
from pipeline.component.contracts import Sink, SinkContext
from pipeline.delivery.options import RetryOptions
from pipeline.delivery.queued_sink import QueuedSink
from sinks.jsonl.options import Options
from sinks.jsonl.queued_lines import LinesPush
from sinks.jsonl.sink import JsonLinesSink

_RETRY: Final = RetryOptions(initial=Duration.parse("1s"), max=Duration.parse("10s"))
_LONGEST: Final = 16 << 20
"""Bytes: a line that is longer is no line of ours."""


def make_sink(options: Options, ctx: SinkContext) -> Sink:
    """Make a sink that drops what can't be written now, or one that keeps it in a queue.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: what the runtime lends.
    """
    if options.queue is None:
        return JsonLinesSink(options, ctx)
    push = LinesPush(options, ctx)
    return QueuedSink(push, options.queue, _RETRY, ctx, kind="jsonl", most_bytes=_LONGEST)
