"""What waits to be written into the ledger's file."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pipeline.ledger.usage_delta import Amounts
from pipeline.model import Device, DeviceUsage, Holding, PartialRef, PodInfo
from pipeline.model.usage_window import Gap

MAX_HOURS: Final = 20_000
"""How many parts of hours wait at most while the file can't be written."""

MAX_HOLDINGS: Final = 20_000
"""How many holdings wait at most, and how many gaps."""


@dataclass(slots=True)
class HoldingRow:
    """A holding to be written.

    Attributes:
        holding: as it is.
        start_ns: when it began, in nanoseconds of Unix time.
        until_ns: when it ended, or up to when it is counted; likewise. The time between the two is
            that of the monotonic clock.
    """

    holding: Holding
    start_ns: int
    until_ns: int


@dataclass(slots=True)
class Batch:
    """What is written in one transaction. Applying it a second time changes nothing.

    Attributes:
        token: tells it from all others: the file remembers which one it took last.
        hours: gains by hour, device and container; None is nobody.
        gap_hours: gaps by hour and device, in nanoseconds.
        unknown_hours: by hour and device, the time for which it isn't known who held the device, in
            nanoseconds; it is part of nobody's.
        gaps: by id.
        holdings: those that go on or have ended, as they are, by id.
        closed: ids of those that end where they were last counted up to: nobody tells of them any
            more.
        dropped: ids of those that turned out to be part of others, which have all that they had.
        devices: what is known of devices.
        pods: what is known of the containers' pods.
        states: accounts as they stand after all this.
        evicted: how much of it had to make room, by what it was.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    hours: dict[tuple[int, str, PartialRef | None], Amounts] = field(default_factory=dict)
    gap_hours: dict[tuple[int, str], int] = field(default_factory=dict)
    unknown_hours: dict[tuple[int, str], int] = field(default_factory=dict)
    gaps: dict[str, Gap] = field(default_factory=dict)
    holdings: dict[str, HoldingRow] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    devices: dict[str, Device] = field(default_factory=dict)
    pods: dict[PartialRef, PodInfo] = field(default_factory=dict)
    states: dict[str, DeviceUsage] = field(default_factory=dict)
    evicted: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.states or self.holdings or self.closed or self.dropped or self.hours)

    def add(self, hour: int, device: str, container: PartialRef | None, more: Amounts) -> None:
        """Add what was gained in an hour."""
        key = hour, device, container
        known = self.hours.get(key)
        self.hours[key] = more if known is None else _followed(known, more)

    def add_unknown(self, hour: int, device: str, time_ns: int) -> None:
        """Let so much of nobody's time in an hour be time of which it isn't known who held it."""
        key = hour, device
        self.unknown_hours[key] = self.unknown_hours.get(key, 0) + time_ns

    def device_hours(self) -> Iterator[tuple[int, str, int, int, int | None, int | None, int]]:
        """Yield hour, device, accounted time, gap, busy time, energy, and unknown time.

        Accounted time, busy time and energy are the sums of the parts.
        """
        sums: dict[tuple[int, str], Amounts] = {}
        for (hour, device, _), part in self.hours.items():
            known = sums.get((hour, device))
            sums[hour, device] = part if known is None else _sum(known, part)
        for key in self.gap_hours.keys() - sums.keys():
            sums[key] = 0, None, None
        for (hour, device), (held, busy, energy) in sums.items():
            key = hour, device
            gap, unknown = self.gap_hours.get(key, 0), self.unknown_hours.get(key, 0)
            yield hour, device, held, gap, busy, energy, unknown

    def enforce_limits(self) -> None:
        """Keep it from growing for ever: what makes room is counted.

        Of the oldest hours what was a container's becomes nobody's, so that all adds up still, and
        what is nobody's of weeks goes at last. Of holdings those that ended first go, and of gaps
        the oldest.
        """
        if len(self.hours) > MAX_HOURS:
            owned = sorted(key[0] for key in self.hours if key[2] is not None)
            until = owned[len(owned) // 2] if owned else 0
            for key in [key for key in self.hours if key[2] is not None and key[0] <= until]:
                hour, device, _ = key
                amounts = self.hours.pop(key)
                self.add(hour, device, None, amounts)
                self.add_unknown(hour, device, amounts[0])
                self._count("hours")
            for key in sorted(self.hours, key=_hour)[: len(self.hours) - MAX_HOURS]:
                del self.hours[key]
                self._count("hours")
        if len(self.holdings) > MAX_HOLDINGS:
            ended = [
                (row.until_ns, at)
                for at, row in enumerate(self.holdings.values())
                if row.holding.end is not None
            ]
            keys = list(self.holdings)
            for _, at in sorted(ended)[: MAX_HOLDINGS // 2]:
                del self.holdings[keys[at]]
                self._count("holdings")
        while len(self.gaps) > MAX_HOLDINGS:
            del self.gaps[next(iter(self.gaps))]
            self._count("gaps")
        if len(self.pods) > MAX_HOURS + MAX_HOLDINGS:
            told = {whose for _, _, whose in self.hours} | {
                row.holding.subject for row in self.holdings.values()
            }
            for subject in self.pods.keys() - told:
                del self.pods[subject]

    def _count(self, what: str) -> None:
        self.evicted[what] = self.evicted.get(what, 0) + 1


def _hour(key: tuple[int, str, PartialRef | None]) -> int:
    return key[0]


def _sum(one: Amounts, other: Amounts) -> Amounts:
    held, busy, energy = one
    more_held, more_busy, more_energy = other
    return held + more_held, _plus(busy, more_busy), _plus(energy, more_energy)


def _followed(one: Amounts, later: Amounts) -> Amounts:
    """Return the sum of what follows each other in an hour.

    A 0 that something unknown follows isn't kept: it would stand for both.
    """
    held, busy, energy = _sum(one, later)
    return (
        held,
        busy or None if later[1] is None else busy,
        energy or None if later[2] is None else energy,
    )


def _plus(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
