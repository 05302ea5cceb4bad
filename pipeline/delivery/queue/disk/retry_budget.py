"""Limits how long reading a failing disk is retried."""

from collections.abc import Callable
from typing import Final

from pipeline.model import NS, Instant

_MIN_WAIT_NS: Final = 60 * NS
_MAX_WAIT_NS: Final = 600 * NS
_MIN_TRIES: Final = 10


class RetryBudget:
    """Is exhausted a minute after the first of consecutive failures.

    A cable, a controller or a network may be away for a while, and the data on disk be intact. A
    minimum number of tries, at least a second apart, is required too: nothing is read while the
    receiver accepts nothing.

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
        """Whether the last try failed."""
        return self._since_ns is not None

    @property
    def is_exhausted(self) -> bool:
        """Whether to give up data that can't be read, if other data can be read."""
        return self._tries >= _MIN_TRIES and self._waited_ns() >= _MIN_WAIT_NS

    @property
    def is_hopeless(self) -> bool:
        """Whether to give up all data, although none of it can be read."""
        return self.is_exhausted and self._waited_ns() >= _MAX_WAIT_NS

    def _waited_ns(self) -> int:
        return 0 if self._since_ns is None else self._now().mono_ns - self._since_ns

    def record_failure(self) -> None:
        """Note that a try failed."""
        now_ns = self._now().mono_ns
        if self._since_ns is None:
            self._since_ns, self._tries = now_ns, 0
        if not self._tries or now_ns - self._last_ns >= NS:
            self._last_ns = now_ns
            self._tries += 1

    def record_success(self) -> None:
        """Reset the budget: the data was read or given up."""
        self._since_ns = None
