"""A counter that only grows, and the readings of it that can't be true."""

from typing import Final

from pipeline.model import NS

CONFIRMED_NS: Final = 60 * NS
"""For how long readings must agree with each other before they replace a base that they contradict:
the counter was reset then."""

POWER_LIMIT_MW: Final = 4_000_000
"""The power limit of a GPU whose driver doesn't report one: more than any board draws."""


def energy_rate(limit_mw: int | None) -> int:
    """Return the most millijoules a second that a GPU can use: one and a half of its power limit.

    Args:
        limit_mw: the power limit in milliwatts; None where the driver doesn't report it.
    """
    return (POWER_LIMIT_MW if limit_mw is None else limit_mw) * 3 // 2


class PlausibleCounter:
    """By how much a counter grows between the readings that can be true.

    A reading is good if the counter hasn't fallen since the last good one, and hasn't grown faster
    than it can: by `rate` a second for the time since then and one second more. Any other reading
    is unknown. The last good one stays the base, so that the next good reading returns all that the
    counter grew meanwhile.

    A counter may really have been reset. Readings that contradict the base, but neither contradict
    each other nor stand still for `CONFIRMED_NS`, are taken for that: the first of them is the base
    then. The very first reading is no better than those that contradict it: until the counter has
    grown from it, any two readings that agree with each other, and grow, replace it at once.

    Attributes:
        is_implausible: whether the last reading couldn't be true.
        time_ns: the time in which the counter grew by what `read` last returned.
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
        """Whether there is a base for the next good reading."""
        return self._base is not None

    def is_plausible(self, value: int, at_ns: int, rate: int) -> bool:
        """Whether a reading would be good, or the first; arguments as of `read`."""
        return self._base is None or _follows(self._base, value, at_ns, rate)

    def read(self, value: int, at_ns: int, rate: int) -> int | None:
        """Take in a reading.

        Args:
            value: of the counter.
            at_ns: when it was read, by the monotonic clock.
            rate: by how much it grows in a second at most.

        Returns:
            By how much the counter grew since the last good reading; None where there was none, and
            where this one isn't good.
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
        """Start anew: the next reading is the base."""
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
