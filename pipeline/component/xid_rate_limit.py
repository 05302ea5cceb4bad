"""Limits the rate of XID errors that a source reports.

A GPU can report thousands of one code a minute. The affected containers are known after the first.
"""

from collections import deque
from typing import Final, Generic, TypeVar

from pipeline.base.bounded_dict import set_last
from pipeline.model import NS

T = TypeVar("T")

ERRORS_PER_SECOND: Final = 10
"""Errors per device and code that are reported per second; also the largest burst."""

_STEP_NS: Final = NS // ERRORS_PER_SECOND
_REMEMBERED: Final = 1024
_MAX_PENDING: Final = 1024


class PendingXids(Generic[T]):
    """A bounded queue of XID errors to report; the caller counts errors that are not accepted.

    It outlives its source, so that a later run reports the pending errors of an earlier one.
    """

    def __init__(self) -> None:
        # By device and code: the time up to which the admitted errors have used up the rate.
        self._paid_ns: dict[tuple[str, int], int] = {}
        self._pending: deque[T] = deque()

    def admits(self, device: str, code: int, at_ns: int) -> bool:
        """Count an error; return whether to report it.

        Args:
            device: the device, as the source names it.
            code: the XID error's number.
            at_ns: when it happened, on the monotonic clock.
        """
        key = device, code
        paid_ns = max(self._paid_ns.get(key, at_ns), at_ns)
        admitted = paid_ns - at_ns <= (ERRORS_PER_SECOND - 1) * _STEP_NS
        set_last(self._paid_ns, key, paid_ns + _STEP_NS * admitted, _REMEMBERED)
        return admitted

    def add(self, error: T, device: str, code: int, at_ns: int) -> bool:
        """Add an error, unless too many have its device and code, or are pending.

        Args:
            error: the error; other arguments as of `admits`.
            device: its device.
            code: its number.
            at_ns: when it happened.

        Returns:
            Whether it was added.
        """
        if not self.admits(device, code, at_ns) or len(self._pending) >= _MAX_PENDING:
            return False
        self._pending.append(error)
        return True

    @property
    def pending(self) -> tuple[T, ...]:
        """The pending errors, in the order in which they were added."""
        return tuple(self._pending)

    def mark_reported(self, count: int) -> None:
        """Remove the first errors of the queue: they were emitted."""
        for _ in range(count):
            self._pending.popleft()
