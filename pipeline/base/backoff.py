"""Exponential backoff with jitter."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays between restarts of one component.

    Attributes:
        initial: first delay, in seconds.
        max_delay: longest delay, in seconds.
        healthy_after: after a run of this many seconds, delays start with `initial` again.
        jitter: largest random part that is added to a delay, so that the nodes of a cluster do not
            retry at the same time.
        rng: source of the jitter; tests pass a seeded one.
    """

    initial: float = 1.0
    max_delay: float = 60.0
    healthy_after: float = 60.0
    jitter: float = 0.25
    rng: random.Random = field(default_factory=random.Random)
    _next: float = 0.0

    def delay(self, ran_for: float, retry_after: float | None = None) -> float:
        """Return the seconds to wait.

        Args:
            ran_for: duration of the failed run, in seconds.
            retry_after: shortest delay in seconds that the failure requires; None if there is none.
        """
        if ran_for >= self.healthy_after or self._next == 0.0:
            self._next = self.initial
        base = self._next
        self._next = min(self.max_delay, base * 2)
        return max(base, retry_after or 0.0) * (1 + self.rng.random() * self.jitter)
