"""How many XID errors a source reports, so that a storm of them holds up nobody.

A GPU may give thousands a minute of one code; whom they strike is known after the first.
"""

from typing import Final

from pipeline.model import NS

A_SECOND: Final = 10
"""Errors of one device and code that are reported: so many at once, and in each second after."""

_STEP_NS: Final = NS // A_SECOND
_REMEMBERED: Final = 1024


class XidRateLimit:
    """Says of each error whether it is reported; remembers the devices and codes of late."""

    def __init__(self) -> None:
        self._paid_ns: dict[tuple[str, int], int] = {}

    def admits(self, device: str, code: int, at_ns: int) -> bool:
        """Note an error; return whether it is to be reported.

        Args:
            device: that it happened on, however it is named.
            code: of the error.
            at_ns: when it happened, on the monotonic clock.
        """
        key = device, code
        # Until when those that were admitted have used up the rate.
        paid_ns = max(self._paid_ns.pop(key, at_ns), at_ns)
        admitted = paid_ns - at_ns <= (A_SECOND - 1) * _STEP_NS
        # Behind all others: the first of them is the one that gave none for longest.
        self._paid_ns[key] = paid_ns + _STEP_NS * admitted
        if len(self._paid_ns) > _REMEMBERED:
            del self._paid_ns[next(iter(self._paid_ns))]
        return admitted
