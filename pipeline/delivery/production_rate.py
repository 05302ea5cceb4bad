"""Measures how many bytes podgpu produces for a queue, and warns if that is too much.

While there is a backlog, at most `queue.max_rate` is sent. If podgpu produces as much or more, the
backlog never ends: the queue grows until it is full, although the receiver accepts everything.
"""

from typing import Final

from config.value_types import ByteSize
from pipeline.component.contracts import SinkContext
from pipeline.delivery.log_throttle import LogThrottle
from pipeline.model import NS

WINDOW_NS: Final = 60 * NS
"""Time over which the rate is measured; long enough for data that is produced once a minute."""

_RATE: Final = "podgpu_sink_produced_bytes_per_second"


class ProductionRate:
    """Measures the bytes that are produced for one queue.

    Args:
        max_rate: maximum bytes sent per second; 0 for no limit.
        ctx: logger, metrics and clock of the sink.
    """

    def __init__(self, max_rate: ByteSize, ctx: SinkContext) -> None:
        self._max_rate = max_rate
        self._ctx = ctx
        self._throttle = LogThrottle(ctx.log, ctx.clock)
        self._since_ns: int | None = None
        self._size = 0
        self._reported = False

    def record(self, size: int) -> None:
        """Count produced bytes; call it for every snapshot, also if it produced none.

        Args:
            size: bytes of all records of one snapshot.
        """
        now_ns = self._ctx.clock.now().mono_ns
        if self._since_ns is None:
            self._since_ns = now_ns
        self._size += size
        passed_ns = now_ns - self._since_ns
        # A rate above the limit is known before the window ends.
        exceeds = bool(self._max_rate) and self._size * NS > self._max_rate * WINDOW_NS
        if passed_ns < WINDOW_NS and not exceeds:
            return
        rate = self._size * NS // max(passed_ns, NS)
        self._since_ns, self._size = now_ns, 0
        self._ctx.meter.set(_RATE, rate)
        if self._max_rate:
            self._check_rate(rate)

    def _check_rate(self, rate: int) -> None:
        if rate < self._max_rate:
            if self._reported:
                self._ctx.log.info(
                    "podgpu produces less than queue.max_rate (%s) again: %s per second",
                    self._max_rate,
                    format_bytes(rate),
                )
            self._reported = False
            return
        message = (
            f"podgpu produces {format_bytes(rate)} per second for this sink, and queue.max_rate is "
            f"{self._max_rate}: while there is a backlog only max_rate is sent, so that the queue "
            "grows until it is full, and then the oldest points are dropped (reason "
            "queue_over_size); raise queue.max_rate, or reduce the data with longer intervals of "
            "the sources or fewer fields"
        )
        self._ctx.meter.set_problem(message, self._ctx.clock.now(), warning=True)
        if not self._reported:
            self._reported = self._throttle.warn("more than max_rate", "%s", message)


def format_bytes(rate: int) -> str:
    """Format a number of bytes, such as `1.5 MiB`."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate} B"
