"""Limits the rate of XID errors that a source reports.

A GPU can report thousands of one code a minute. The affected containers are known after the first.
"""

from typing import Final

from pipeline.model import NS

ERRORS_PER_SECOND: Final = 10
"""Errors per device and code that are reported per second; also the largest burst."""

_STEP_NS: Final = NS // ERRORS_PER_SECOND
_REMEMBERED: Final = 1024


class XidRateLimit:
    """A rate limiter per device and code; it keeps the devices and codes used last."""

    def __init__(self) -> None:
        self._paid_ns: dict[tuple[str, int], int] = {}

    def admits(self, device: str, code: int, at_ns: int) -> bool:
        """Count an error; return whether to report it.

        Args:
            device: the device, as the source names it.
            code: the XID error's number.
            at_ns: when it happened, on the monotonic clock.
        """
        key = device, code
        # The time up to which the admitted errors have used up the rate.
        paid_ns = max(self._paid_ns.pop(key, at_ns), at_ns)
        admitted = paid_ns - at_ns <= (ERRORS_PER_SECOND - 1) * _STEP_NS
        # Reinserted at the end of the dict, so that the first key is the one unused for longest.
        self._paid_ns[key] = paid_ns + _STEP_NS * admitted
        if len(self._paid_ns) > _REMEMBERED:
            del self._paid_ns[next(iter(self._paid_ns))]
        return admitted
