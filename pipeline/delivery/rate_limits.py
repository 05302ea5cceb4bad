"""How long to wait, how much to send at once, and how much in a second."""

import random
from typing import Final

from pipeline.delivery.options import RetryOptions
from pipeline.model import NS

_JITTER: Final = 0.25
"""The largest part of a wait that chance takes or adds: a cluster's nodes don't come in step."""

_LEAST: Final = 0.001
"""Seconds; a wait that is shorter than a clock's step would be over before time goes on."""

_STEPS: Final = 256
"""After so many messages that were taken, the largest one is what it was at the start."""


class RetryBackoff:
    """Waits that grow while nothing is taken.

    Args:
        options: the first and the longest.
        rng: source of the jitter; a test gives a seeded one.
    """

    def __init__(self, options: RetryOptions, rng: random.Random | None = None) -> None:
        self._initial = float(options.initial)
        self._most = float(options.max)
        self._rng = rng or random.Random()  # noqa: S311 - it only spreads load
        self._next = self._initial

    def next_delay(self, after: float | None = None) -> float:
        """Return the seconds to wait: the longer of our own wait and the one that was asked for.

        Args:
            after: what the receiver asks for, in seconds: any number. It is granted up to the
                longest wait, with jitter on top while there is room: a receiver tells all nodes
                the same.
        """
        own = min(self._next, self._most)
        self._next = min(self._next * 2, self._most)
        chance = self._rng.random() * _JITTER
        asked = 0.0 if after is None else after * (1 + chance)
        return min(max(own * (1 - chance), asked), self._most)

    def reset(self) -> None:
        """Begin anew: something was taken."""
        self._next = self._initial


class MessageSizeLimit:
    """The largest message, in bytes: what was asked for, until the receiver says that is too large.

    Args:
        most: the largest at all.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = most

    def reduce(self, size: int) -> None:
        """Take it that messages have to be no larger than this."""
        self.bytes = max(1, min(self.bytes, size))

    def on_accepted(self, size: int) -> None:
        """Grow a little after a message of this size, if it tells anything about the limit."""
        if self.bytes < self.most and size * 2 > self.bytes:
            self.bytes = min(self.most, self.bytes + -(-self.most // _STEPS))


class RateLimiter:
    """A token bucket: bytes in a second.

    A message may take more than is there; the next one then waits for it. So the rate holds however
    large messages are.

    Args:
        rate: bytes in a second, which is also what may come at once; 0 for no limit.
    """

    def __init__(self, rate: int) -> None:
        self.rate = rate
        # Bytes times nanoseconds, whole: a debt that is only a rounding would be waited for again.
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
            grown = (now_ns - self._at_ns) * self.rate
            self._tokens = min(self.rate * NS, self._tokens + grown)
        self._at_ns = now_ns
        # Rounded up to the next nanosecond.
        return max(-(self._tokens // self.rate) / NS, _LEAST) if self._tokens < 0 else 0.0

    def spend(self, size: int) -> None:
        """Count a message."""
        self._tokens -= size * NS
