"""Limits the rate of XID errors that a source reports.

A GPU can report thousands of XID errors with the same number per minute. The affected containers
are known after the first one.
"""

from collections import deque
from typing import Final, Generic, TypeVar

from pipeline.base.bounded_dict import set_last
from pipeline.model import NS

T = TypeVar("T")

ERRORS_PER_SECOND: Final = 10
"""Maximum number of XID errors per device and code that are reported per second, and in a burst."""

_STEP_NS: Final = NS // ERRORS_PER_SECOND
_REMEMBERED: Final = 1024
_MAX_PENDING: Final = 1024


class PendingXids(Generic[T]):
    """A queue of XID errors that wait to be emitted. Its length and their rate are limited.

    The caller counts the errors that are not accepted. The queue outlives a run of its source, so
    that a later run reports the errors that an earlier run has left.
    """

    def __init__(self) -> None:
        # By device and code: the time up to which the admitted errors have used up the rate.
        self._paid_ns: dict[tuple[str, int], int] = {}
        self._pending: deque[T] = deque()

    def admits(self, device: str, code: int, at_ns: int) -> bool:
        """Return whether the rate limit allows this error; if it does, count the error.

        Args:
            device: id of the device, as the source names it.
            code: number of the XID error.
            at_ns: when the error happened, on the monotonic clock.
        """
        key = device, code
        paid_ns = max(self._paid_ns.get(key, at_ns), at_ns)
        admitted = paid_ns - at_ns <= (ERRORS_PER_SECOND - 1) * _STEP_NS
        set_last(self._paid_ns, key, paid_ns + _STEP_NS * admitted, _REMEMBERED)
        return admitted

    def add(self, error: T, device: str, code: int, at_ns: int) -> bool:
        """Add an error, unless its rate limit is exceeded or the queue is full.

        Args:
            error: the error.
            device: id of the device, as the source names it.
            code: number of the XID error.
            at_ns: when the error happened, on the monotonic clock.

        Returns:
            Whether the error was added.
        """
        if not self.admits(device, code, at_ns) or len(self._pending) >= _MAX_PENDING:
            return False
        self._pending.append(error)
        return True

    @property
    def pending(self) -> tuple[T, ...]:
        """The XID errors in the queue, in the order in which they were added."""
        return tuple(self._pending)

    def mark_reported(self, count: int) -> None:
        """Remove the first `count` errors from the queue, because they were emitted."""
        for _ in range(count):
            self._pending.popleft()
