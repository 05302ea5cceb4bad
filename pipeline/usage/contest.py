"""How much of a busy time may belong to other users of the device, by the usage samples."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from pipeline.model import WINDOW_NS

K = TypeVar("K")

UNSEEN_NS: Final = WINDOW_NS // 2
"""The busy time that is assumed of a user to which the driver gave no window. It was present, so it
may have worked in any window. Half a draw is Jeffreys' rule for what was never drawn."""

_SWITCHING: Final = 2, 9
"""The part of the contested time that a saturated device needs to switch between its users, as a
fraction. Two processes that each could saturate an H100 lose 10 % of their work, of which half is
contested: 0.2. The fraction is a little larger, because kernels differ."""


class Contest(NamedTuple):
    """How uncertain a busy time is; see `ContainerUsage`."""

    contested_ns: int = 0
    switching_ns: int = 0

    def plus(self, more: "Contest") -> "Contest":
        """Return the sum of two."""
        return Contest(self.contested_ns + more.contested_ns, self.switching_ns + more.switching_ns)


UNCONTESTED: Final = Contest()
"""That of a container which was always the only user."""


def sum_contests(one: Contest | None, more: Contest | None) -> Contest | None:
    """Return the sum; None if either is unknown."""
    return None if one is None or more is None else one.plus(more)


def known_contest(
    busy_ns: int | None, contest: Contest | None
) -> tuple[int, int] | tuple[None, None]:
    """Return the two amounts for a busy time; twice None if that or they are unknown."""
    return (None, None) if busy_ns is None or contest is None else (*contest,)


def contests(
    busy: Mapping[K, int], unattributed_ns: int, users: Collection[K | None], time_ns: int
) -> dict[K, Contest]:
    """Return how uncertain the split of an interval's busy time is.

    Each window of the driver is a draw among the users of the device. A part b of the busy time B
    has the variance b x (1 - b / B) in units of windows, which is the contested time.

    Args:
        busy: busy time by container, in nanoseconds.
        unattributed_ns: busy time that belongs to no container; all of it is that of one user.
        users: who used the device in the interval; None stands for what is in no container.
        time_ns: the length of the interval, more than 0.

    Returns:
        An entry for each container in `busy` and in `users`; empty if nothing can be contested,
        because there is one user or no busy time.
    """
    total = sum(busy.values()) + unattributed_ns
    known = {*users, *busy, *((None,) if unattributed_ns else ())}
    if len(known) < 2 or not total:
        return {}
    least = min(UNSEEN_NS, total)
    parts = {one: max(unattributed_ns if one is None else busy.get(one, 0), least) for one in known}
    whole = sum(parts.values())
    numerator, denominator = _SWITCHING
    load_ns = min(total, time_ns)
    found = {}
    for one, part in parts.items():
        if one is not None:
            contested = part * (whole - part) // whole
            # Users meet on the device, and it has to switch, as often as both want it.
            switching = contested * numerator * load_ns**2 // (denominator * time_ns**2)
            found[one] = Contest(contested, switching)
    return found
