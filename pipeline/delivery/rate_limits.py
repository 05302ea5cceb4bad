"""Limits of sending: waits between retries, size of messages, bytes per second, and warnings."""

import logging
import random
from typing import Final

from config.value_types import ByteSize
from pipeline.base.clock import Clock
from pipeline.component.contracts import SinkContext
from pipeline.delivery.options import RetryOptions
from pipeline.model import NS

_MINUTE_NS: Final = 60 * NS

_JITTER: Final = 0.25
"""Largest random part of a wait, so that the nodes of a cluster do not retry at the same time."""

_MIN_DELAY: Final = 0.001
"""Minimum wait in seconds: a wait below the clock's resolution could end without time passing."""

_STEPS: Final = 256
"""Number of accepted messages close to the limit after which the limit is at its maximum again."""


class RetryBackoff:
    """Exponential backoff with jitter.

    Args:
        options: the initial and the longest wait.
        rng: source of the jitter; tests pass a seeded one.
    """

    def __init__(self, options: RetryOptions, rng: random.Random | None = None) -> None:
        self._initial = float(options.initial)
        self._most = float(options.max)
        self._rng = rng or random.Random()  # noqa: S311 - it only spreads load
        self._next = self._initial

    def next_delay(self, after: float | None = None) -> float:
        """Return the seconds to wait: podgpu's own wait or the receiver's, whichever is longer.

        Args:
            after: the wait that the receiver requests, in seconds; None if it requests none. It is
                limited to the longest wait. Below that, jitter is added, because a receiver sends
                the same number to all nodes.
        """
        own = min(self._next, self._most)
        self._next = min(self._next * 2, self._most)
        jitter = self._rng.random() * _JITTER
        requested = 0.0 if after is None else after * (1 + jitter)
        return min(max(own * (1 - jitter), requested), self._most)

    def reset(self) -> None:
        """Start again with the first wait, because the receiver has responded."""
        self._next = self._initial


class MessageSizeLimit:
    """The maximum size of a message, in bytes, adapted to what the receiver accepts.

    Args:
        most: the upper bound of the limit.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = most

    def reduce(self, size: int) -> None:
        """Limit messages to this size, unless the limit is lower."""
        self.bytes = max(1, min(self.bytes, size))

    def on_accepted(self, size: int) -> None:
        """Raise the limit a little if an accepted message of this size was close to it."""
        if self.bytes < self.most and size * 2 > self.bytes:
            self.bytes = min(self.most, self.bytes + -(-self.most // _STEPS))


class RateLimiter:
    """A token bucket of bytes per second.

    A message may use more tokens than there are; the next message then waits. So the rate is kept
    even with large messages.

    Args:
        rate: bytes per second, which is also the size of the bucket; 0 for no limit.
    """

    def __init__(self, rate: int) -> None:
        self.rate = rate
        # Bytes times nanoseconds, as integers: a rounding error would cause another wait.
        self._tokens = rate * NS
        self._at_ns: int | None = None

    def delay(self, now_ns: int) -> float:
        """Return how many seconds the next message has to wait.

        Args:
            now_ns: the monotonic clock.
        """
        if not self.rate:
            return 0.0
        if self._at_ns is not None:
            refill = (now_ns - self._at_ns) * self.rate
            self._tokens = min(self.rate * NS, self._tokens + refill)
        self._at_ns = now_ns
        # Rounded up to the next nanosecond.
        return max(-(self._tokens // self.rate) / NS, _MIN_DELAY) if self._tokens < 0 else 0.0

    def spend(self, size: int) -> None:
        """Take the tokens for a message of this size."""
        self._tokens -= size * NS


class ProductionRate:
    """Measures how many bytes podgpu produces for a queue, and warns if they are too many.

    While there is a backlog, at most `queue.max_rate` is sent. If podgpu produces as much or more,
    the backlog never ends: the queue grows until it is full, although the receiver accepts
    everything. The rate is measured over a minute, since some data is produced once a minute.

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
        """Count the bytes produced from a snapshot; call it for every snapshot, also with 0.

        Args:
            size: bytes of all records of one snapshot.
        """
        now_ns = self._ctx.clock.now().mono_ns
        if self._since_ns is None:
            self._since_ns = now_ns
        self._size += size
        passed_ns = now_ns - self._since_ns
        # A rate above the limit is known before the window ends.
        exceeds = bool(self._max_rate) and self._size * NS > self._max_rate * _MINUTE_NS
        if passed_ns < _MINUTE_NS and not exceeds:
            return
        rate = self._size * NS // max(passed_ns, NS)
        self._since_ns, self._size = now_ns, 0
        self._ctx.meter.set("podgpu_sink_produced_bytes_per_second", rate)
        if rate < self._max_rate or not self._max_rate:
            if self._reported:
                self._ctx.log.info(
                    "podgpu no longer produces more than queue.max_rate (%s): now %s per second",
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


class LogThrottle:
    """Logs each warning at most once a minute; repetitions are logged at level debug.

    Args:
        log: the logger.
        clock: measures the minute.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._logged_ns: dict[str, int] = {}

    def warn(self, key: str, text: str, *args: object) -> bool:
        """Log a message.

        Args:
            key: identifies the warning; equal for repetitions.
            text: format of the message.
            args: values for the format.

        Returns:
            Whether it was logged as a warning.
        """
        now_ns = self._clock.now().mono_ns
        recent = {key: at for key, at in self._logged_ns.items() if now_ns - at < _MINUTE_NS}
        new = key not in recent
        if new:
            recent[key] = now_ns
        self._logged_ns = recent
        self._log.log(logging.WARNING if new else logging.DEBUG, text, *args)
        return new
