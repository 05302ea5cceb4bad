"""A counter that only increases, with detection of implausible readings."""

from typing import Final

from pipeline.model import NS

CONFIRMED_NS: Final = 60 * NS
"""How long readings must be consistent with each other before they replace a base that they
contradict: the counter was reset."""

POWER_LIMIT_MW: Final = 4_000_000
"""Power limit of a GPU whose driver reports none: higher than the limit of any board."""


def energy_rate(limit_mw: int | None) -> int:
    """Return the largest plausible energy rate of a GPU, in mJ/s: 1.5 times its power limit.

    Args:
        limit_mw: the power limit in milliwatts; None if the driver reports none: then
            `POWER_LIMIT_MW` is used.
    """
    return (POWER_LIMIT_MW if limit_mw is None else limit_mw) * 3 // 2


class PlausibleCounter:
    """Calculates the increase of a counter between plausible readings.

    A reading is good if the counter has not decreased since the last good one, and has not grown
    faster than `rate` per second over the time since then plus one second. The increase at any
    other reading is unknown. The last good reading stays the base, so the next good one returns
    the whole increase since.

    A counter can be reset. Readings that contradict the base but are consistent with each other,
    and grow, for `CONFIRMED_NS` mean a reset: the first of them becomes the base. The very first
    reading is not more reliable than those that contradict it: until the counter has grown from
    it, any two readings that are consistent with each other, and grow, replace it immediately.

    Attributes:
        is_implausible: whether the last reading was implausible.
        time_ns: the time in which the counter grew by the amount that `read` last returned.
    """

    def __init__(self) -> None:
        self.is_implausible = False
        self.time_ns = 0
        self._base: tuple[int, int] | None = None
        self._grew = False
        self._first: tuple[int, int] | None = None
        self._last = 0

    @property
    def has_base(self) -> bool:
        """Whether there is a base for the next reading."""
        return self._base is not None

    def is_plausible(self, value: int, at_ns: int, rate: int) -> bool:
        """Whether a reading would be good, or would be the first one; see `read`."""
        return self._base is None or _follows(self._base, value, at_ns, rate)

    def read(self, value: int, at_ns: int, rate: int) -> int | None:
        """Add a reading.

        Args:
            value: the counter.
            at_ns: when it was read, by the monotonic clock.
            rate: the largest possible increase per second.

        Returns:
            The increase since the last good reading; when a reset is confirmed, the increase since
            the first reading after the reset. None for the first reading, and for one that is not
            good.
        """
        base, first = self._base, self._first
        self.is_implausible = False
        if base is None:
            self._base = (value, at_ns)
            return None
        if _follows(base, value, at_ns, rate):
            return self._grown(base, value, at_ns)
        if first is None or value < self._last or not _follows(first, value, at_ns, rate):
            self._first = (value, at_ns)
        elif value > first[0] and (not self._grew or at_ns - first[1] >= CONFIRMED_NS):
            return self._grown(first, value, at_ns)
        self._last, self.is_implausible = value, True
        return None

    def reset(self) -> None:
        """Forget all readings; the next one is the base."""
        self._base = self._first = None
        self._grew = False

    def _grown(self, since: tuple[int, int], value: int, at_ns: int) -> int:
        self._base, self._first = (value, at_ns), None
        self._grew = self._grew or value > since[0]
        self.time_ns = at_ns - since[1]
        return value - since[0]


def _follows(before: tuple[int, int], value: int, at_ns: int, rate: int) -> bool:
    grown, time_ns = value - before[0], at_ns - before[1]
    return 0 <= grown * NS <= rate * (time_ns + NS)
