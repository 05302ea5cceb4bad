"""How long to wait before trying again."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Growing, jittered delays for one component.

    Attributes:
        initial: first delay, in seconds.
        max_delay: longest delay, in seconds.
        healthy_after: a run that lasted so many seconds starts the delays anew.
        jitter: largest part of a delay that chance adds to it, so that a cluster's nodes don't
            come back in step.
        rng: source of the jitter; a test gives a seeded one.
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
            ran_for: how long the run that failed has lasted, in seconds.
            retry_after: a floor that the failure itself asks for.
        """
        if ran_for >= self.healthy_after or self._next == 0.0:
            self._next = self.initial
        base = self._next
        self._next = min(self.max_delay, base * 2)
        return max(base, retry_after or 0.0) * (1 + self.rng.random() * self.jitter)
