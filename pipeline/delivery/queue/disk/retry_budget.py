"""How long a disk that can't be read is asked again."""

from collections.abc import Callable
from typing import Final

from pipeline.model import NS, Instant

_LONGEST_NS: Final = 60 * NS
_HOPELESS_NS: Final = 600 * NS
_TRIES: Final = 10


class RetryBudget:
    """Ends a minute after the first of all tries that failed, one after the other.

    A cable, a controller or a network may be away for a while, and what is on the disk is sound.
    There have to be some tries, a second or more apart: nothing is read while no receiver takes it.

    Args:
        now: the clocks.
    """

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._since_ns: int | None = None
        self._last_ns = 0
        self._tries = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last try has failed."""
        return self._since_ns is not None

    @property
    def is_exhausted(self) -> bool:
        """Whether what can't be read is to be given up, while something else can."""
        return self._tries >= _TRIES and self._waited_ns() >= _LONGEST_NS

    @property
    def is_hopeless(self) -> bool:
        """Whether all is to be given up, though nothing at all can be read."""
        return self.is_exhausted and self._waited_ns() >= _HOPELESS_NS

    def _waited_ns(self) -> int:
        return 0 if self._since_ns is None else self._now().mono_ns - self._since_ns

    def record_failure(self) -> None:
        """Note that a try has failed."""
        now_ns = self._now().mono_ns
        if self._since_ns is None:
            self._since_ns, self._tries = now_ns, 0
        if not self._tries or now_ns - self._last_ns >= NS:
            self._last_ns = now_ns
            self._tries += 1

    def record_success(self) -> None:
        """Begin anew: all that was asked for was read, or given up."""
        self._since_ns = None
