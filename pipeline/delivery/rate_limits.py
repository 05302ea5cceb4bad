"""Limits of sending: waits between retries, size of a message, and bytes per second."""

import random
from typing import Final

from pipeline.delivery.options import RetryOptions
from pipeline.model import NS

_JITTER: Final = 0.25
"""Largest random part of a wait, so that the nodes of a cluster do not retry at the same time."""

_MIN_DELAY: Final = 0.001
"""Minimum wait in seconds: a wait below the clock's resolution could end without time passing."""

_STEPS: Final = 256
"""Number of accepted messages after which the size limit is back at its maximum."""


class RetryBackoff:
    """Exponential backoff with jitter.

    Args:
        options: the first and the longest wait.
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
            after: the wait that the receiver requests, in seconds. Any number; it is limited to the
                longest wait. Up to there jitter is added, because a receiver sends the same number
                to all nodes.
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
    """Size limit of a message, in bytes, which adapts to what the receiver accepts.

    Args:
        most: the upper bound.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = most

    def reduce(self, size: int) -> None:
        """Limit messages to this size."""
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
        """Take the tokens of a message."""
        self._tokens -= size * NS
