"""What the reference reckons with: sums, holdings, and how a time is shared and laid out."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from tests.accounting.given_out import (
    HOUR,
    Who,
)

SLICES: Final = {"m1": 1, "m2": 3}
"""The MIG instances, and how many of their GPU's slices each has."""
NO_ONE: Final = ""


@dataclass
class Sum:
    """A total: its exact value, and by how many whole units podgpu's may differ from it."""

    value: Fraction = Fraction(0)
    slack: int = 0

    def add(self, amount: Fraction | int, slack: int | None = None) -> None:
        amount = Fraction(amount)
        self.value += amount
        self.slack += int(amount.denominator != 1) if slack is None else slack

    def fits(self, found: int) -> bool:
        return found == self.value if not self.slack else abs(found - self.value) <= self.slack


@dataclass
class Episode:
    """A holding."""

    who: Who
    device: str
    start: int
    end: int | None = None
    counted: int = 0
    gap: int = 0
    held: Sum = field(default_factory=Sum)
    busy: Sum = field(default_factory=Sum)
    energy: Sum = field(default_factory=Sum)
    busy_known: int = 0
    energy_known: bool = False
    peak: int | None = None
    byte_ns: int = 0
    memory_ns: int = 0
    xids: Counter[int] = field(default_factory=Counter)
    final: bool = False
    late: int = 0
    """When it was final, if no look came."""

    def overlap(self, begin: int, end: int) -> int:
        upto = end if self.end is None else min(end, self.end)
        return max(upto - max(begin, self.start), 0)


@dataclass
class Had:
    """What a container has had of a device, over all of its holdings."""

    held: Sum = field(default_factory=Sum)
    busy: Sum = field(default_factory=Sum)
    energy: Sum = field(default_factory=Sum)
    busy_known: bool = False
    energy_known: bool = False
    xids: Counter[int] = field(default_factory=Counter)
    episodes: list[Episode] = field(default_factory=list)
    holds: bool = False
    uses: bool = False
    ceased: int = -1
    memory: int | None = None
    pending: bool = False
    came: int = 0
    """When it was there, after it wasn't, or nobody knew."""
    seen: tuple[int, int, int] = (0, 0, 0)
    """The last look that podgpu took while it was there, before a start, and the time and the gaps
    that were counted up to then."""

    @property
    def live(self) -> Episode | None:
        last = self.episodes[-1] if self.episodes else None
        return last if last is not None and last.end is None and not self.pending else None


Holders = dict[Who, float | None]


@dataclass
class Cut:
    """Who holds a device from a moment on."""

    at: int
    holders: Holders
    listed: bool


@dataclass
class Since:
    """What has happened on a device since the energy counter's last good reading."""

    time: int = 0
    held: dict[Who, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    busy: dict[Who, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    spans: dict[int, tuple[Episode, int]] = field(default_factory=dict)
    known: bool = True
    unknown: set[Who] = field(default_factory=set)
    present: set[Who] = field(default_factory=set)


def shares(holders: Holders) -> dict[Who, Fraction]:
    """Return which part of the device each has."""
    known = {
        who: Fraction(part).limit_denominator(1000)
        for who, part in holders.items()
        if part is not None
    }
    if sum(known.values()) > 1:
        known = {}  # they aren't believed then, and nobody's is shown
    rest = 1 - sum(known.values(), Fraction(0))
    others = [who for who in holders if who not in known]
    parts = dict(known)
    if others:
        each = rest / len(others) if rest > 0 else min(known.values())
        parts |= dict.fromkeys(others, each)
    whole = sum(parts.values(), Fraction(0))
    return {who: part / whole for who, part in parts.items()} if whole > 1 else parts


def lay(
    hours: dict[int, dict[str, Sum]],
    spans: list[tuple[int, int]],
    took: int,
    gained: dict[str, Sum],
    containers: int,
) -> None:
    """Lay what a look brought onto the hours that its time lies in."""
    for what, amount in gained.items():
        for hour, part in spans:
            slack = amount.slack + (containers + 1) * int(len(spans) > 1)
            hours[hour][what].add(amount.value * part / took, slack)


class Clocks:
    """The wall clock, at each moment of a story."""

    def __init__(self, wall: int) -> None:
        self.offset = wall

    def spread(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the hours that a time lies in, by the clock as it is set now, and its parts."""
        found = []
        start, stop = begin + self.offset, end + self.offset
        while start < stop:
            hour = start // HOUR
            upto = min(stop, (hour + 1) * HOUR)
            found.append((hour, upto - start))
            start = upto
        return found
