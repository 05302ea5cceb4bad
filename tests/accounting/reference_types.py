"""Types of the reference: sums and holdings; how time is shared and split by hour."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from tests.accounting.actions import (
    HOUR,
    ContainerName,
)

SLICES: Final = {"m1": 1, "m2": 3}
"""The number of slices of each MIG instance."""
NO_CONTAINER: Final = ""


@dataclass
class Sum:
    """A total: its exact value, and by how many units podgpu's value may differ."""

    value: Fraction = Fraction(0)
    slack: int = 0

    def add(self, amount: Fraction | int, slack: int | None = None) -> None:
        amount = Fraction(amount)
        self.value += amount
        self.slack += int(amount.denominator != 1) if slack is None else slack

    def fits(self, found: int) -> bool:
        return found == self.value if not self.slack else abs(found - self.value) <= self.slack


@dataclass
class Holding:
    """One holding of a container on a device."""

    container: ContainerName
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
    """When it was final, if no sample came."""

    def overlap(self, begin: int, end: int) -> int:
        stop = end if self.end is None else min(end, self.end)
        return max(stop - max(begin, self.start), 0)


@dataclass
class UsageTotals:
    """The totals of a container on a device, over all of its holdings."""

    held: Sum = field(default_factory=Sum)
    busy: Sum = field(default_factory=Sum)
    energy: Sum = field(default_factory=Sum)
    busy_known: bool = False
    energy_known: bool = False
    xids: Counter[int] = field(default_factory=Counter)
    holdings: list[Holding] = field(default_factory=list)
    holds: bool = False
    uses: bool = False
    released_at: int = -1
    memory: int | None = None
    pending: bool = False
    appeared_at: int = 0
    """When it started to hold or use the device, as far as is known."""
    last_seen: tuple[int, int, int] = (0, 0, 0)
    """The last sample before a restart in which it was present, and the time and the gaps that were
    counted until then."""

    @property
    def current(self) -> Holding | None:
        last = self.holdings[-1] if self.holdings else None
        return last if last is not None and last.end is None and not self.pending else None


Holders = dict[ContainerName, float | None]


@dataclass
class HolderChange:
    """The holders of a device from a time on."""

    at: int
    holders: Holders
    listed: bool


@dataclass
class SinceReading:
    """What happened on a device since the last good reading of the energy counter."""

    time: int = 0
    held: dict[ContainerName, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    busy: dict[ContainerName, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    spans: dict[int, tuple[Holding, int]] = field(default_factory=dict)
    known: bool = True
    unknown: set[ContainerName] = field(default_factory=set)
    present: set[ContainerName] = field(default_factory=set)


def shares(holders: Holders) -> dict[ContainerName, Fraction]:
    """Return the part of the device that each holder has."""
    known = {
        container: Fraction(part).limit_denominator(1000)
        for container, part in holders.items()
        if part is not None
    }
    if sum(known.values()) > 1:
        known = {}  # shares of more than the device are ignored
    rest = 1 - sum(known.values(), Fraction(0))
    others = [container for container in holders if container not in known]
    parts = dict(known)
    if others:
        each = rest / len(others) if rest > 0 else min(known.values())
        parts |= dict.fromkeys(others, each)
    whole = sum(parts.values(), Fraction(0))
    return {container: part / whole for container, part in parts.items()} if whole > 1 else parts


def add_to_hours(
    hours: dict[int, dict[str, Sum]],
    spans: list[tuple[int, int]],
    took: int,
    increases: dict[str, Sum],
    containers: int,
) -> None:
    """Add the increases of an interval to the hours that it spans."""
    for what, amount in increases.items():
        for hour, part in spans:
            slack = amount.slack + (containers + 1) * int(len(spans) > 1)
            hours[hour][what].add(amount.value * part / took, slack)


class WallClock:
    """The wall clock during a story."""

    def __init__(self, wall: int) -> None:
        self.offset = wall

    def split_by_hour(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Split a time by hour of the wall clock as it is set now; return hours and lengths."""
        found = []
        start, stop = begin + self.offset, end + self.offset
        while start < stop:
            hour = start // HOUR
            part_end = min(stop, (hour + 1) * HOUR)
            found.append((hour, part_end - start))
            start = part_end
        return found
