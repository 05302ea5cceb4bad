"""How much podgpu itself makes for a queue, and a word where that is more than may be sent.

While there is a backlog no more than `queue.max_rate` is sent. Where as much or more is made, a
backlog never ends: it grows until the queue is full, though the receiver takes all that it gets.
"""

from typing import Final

from config.value_types import ByteSize
from pipeline.component.contracts import SinkContext
from pipeline.delivery.log_throttle import LogThrottle
from pipeline.model import NS

WINDOW_NS: Final = 60 * NS
"""Over what time the rate is worked out: what is told seldom, once a minute, is in it."""

_RATE: Final = "podgpu_sink_produced_bytes_per_second"


class ProductionRate:
    """Counts what is made for one queue.

    Args:
        max_rate: bytes that are sent in a second at most; 0 for no limit.
        ctx: whose metrics and whose log.
    """

    def __init__(self, max_rate: ByteSize, ctx: SinkContext) -> None:
        self._max_rate = max_rate
        self._ctx = ctx
        self._throttle = LogThrottle(ctx.log, ctx.clock)
        self._since_ns: int | None = None
        self._size = 0
        self._reported = False

    def record(self, size: int) -> None:
        """Note that so many bytes were made, or that none were.

        Args:
            size: of all records of one snapshot.
        """
        now_ns = self._ctx.clock.now().mono_ns
        if self._since_ns is None:
            self._since_ns = now_ns
        self._size += size
        passed_ns = now_ns - self._since_ns
        # It is known before its time that it is more.
        more = bool(self._max_rate) and self._size * NS > self._max_rate * WINDOW_NS
        if passed_ns < WINDOW_NS and not more:
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
                    "podgpu makes less than queue.max_rate (%s) again: %s a second",
                    self._max_rate,
                    format_bytes(rate),
                )
            self._reported = False
            return
        told = (
            f"podgpu itself makes {format_bytes(rate)} a second for this sink, and queue.max_rate "
            f"is {self._max_rate}: while data waits no more than that is sent, so that the queue "
            "grows until it is full, and then the oldest is dropped and counted "
            "(queue_over_size); raise queue.max_rate, or let podgpu make less: longer intervals of "
            "the sources, fewer fields"
        )
        self._ctx.meter.set_problem(told, self._ctx.clock.now(), warning=True)
        if not self._reported:
            self._reported = self._throttle.warn("more than max_rate", "%s", told)


def format_bytes(rate: int) -> str:
    """Return a number of bytes for people, such as `1.5 MiB`."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate} B"
