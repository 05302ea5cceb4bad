"""The data to be written to the ledger file in one transaction."""

import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from pipeline.ledger.usage_delta import Amounts
from pipeline.model import Device, DeviceUsage, Holding, PartialRef, PodInfo
from pipeline.model.ledger_usage import Gap

MAX_HOURS: Final = 20_000
"""Maximum number of amounts of hours that are kept while the file cannot be written."""

MAX_HOLDINGS: Final = 20_000
"""Maximum number of holdings that are kept in that case. The same limit applies to gaps."""


@dataclass(slots=True)
class HoldingRow:
    """A holding to be written.

    Attributes:
        holding: the current state of the holding.
        start_ns: start of the holding, in nanoseconds of Unix time.
        until_ns: end of the holding, or the time up to which it is counted, in nanoseconds of Unix
            time. The difference to `start_ns` is measured on the monotonic clock.
    """

    holding: Holding
    start_ns: int
    until_ns: int


@dataclass(slots=True)
class Batch:
    """The data of one transaction. To write the same batch again changes nothing.

    Attributes:
        token: identifies the batch. The file stores the token of the last batch.
        hours: gains by hour, device and container. The container None means unattributed.
        gap_hours: length of gaps by hour and device, in nanoseconds.
        unknown_hours: time for which it is unknown who held the device, by hour and device, in
            nanoseconds. It is a part of the unattributed time.
        gaps: gaps by id.
        holdings: running and ended holdings by id.
        closed: ids of holdings that are no longer reported. They end at their last counted time.
        dropped: ids of holdings that were merged into others, which contain their amounts.
        devices: properties of devices, by uuid.
        pods: properties of pods, by container.
        states: the accounts after all these changes, by device.
        start_ns: start of the first counted time or gap, in nanoseconds of Unix time; None without.
        evicted: number of items that were removed because there were too many, by kind.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    hours: dict[tuple[int, str, PartialRef | None], Amounts] = field(default_factory=dict)
    gap_hours: Counter[tuple[int, str]] = field(default_factory=Counter)
    unknown_hours: Counter[tuple[int, str]] = field(default_factory=Counter)
    gaps: dict[str, Gap] = field(default_factory=dict)
    holdings: dict[str, HoldingRow] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    devices: dict[str, Device] = field(default_factory=dict)
    pods: dict[PartialRef, PodInfo] = field(default_factory=dict)
    states: dict[str, DeviceUsage] = field(default_factory=dict)
    start_ns: int | None = None
    evicted: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.states or self.holdings or self.closed or self.dropped or self.hours)

    def add(self, hour: int, device: str, container: PartialRef | None, gain: Amounts) -> None:
        """Add a gain of a container in an hour; None means unattributed."""
        key = hour, device, container
        earlier = self.hours.get(key)
        self.hours[key] = gain if earlier is None else _add_later(earlier, gain)

    def begin(self, start_ns: int) -> None:
        """Note that a counted time or a gap starts at a time, in nanoseconds of Unix time."""
        self.start_ns = start_ns if self.start_ns is None else min(self.start_ns, start_ns)

    def device_hours(self) -> Iterator[tuple[int, str, int, int, int | None, int | None, int]]:
        """Yield hour, device, accounted time, gap, busy time, energy and unknown time.

        Accounted time, busy time and energy are the sums of all containers and the unattributed
        part.
        """
        sums: dict[tuple[int, str], Amounts] = {}
        for (hour, device, _), part in self.hours.items():
            earlier = sums.get((hour, device))
            sums[hour, device] = part if earlier is None else _sum(earlier, part)
        for key in self.gap_hours.keys() - sums.keys():
            sums[key] = Amounts(0, None, None)
        for (hour, device), (held, busy, energy, *_) in sums.items():
            gap, unknown = self.gap_hours[hour, device], self.unknown_hours[hour, device]
            yield hour, device, held, gap, busy, energy, unknown

    def enforce_limits(self) -> None:
        """Limit the size of the batch, and count what is removed.

        The older half of the containers' amounts becomes unattributed, so that sums stay correct.
        If that is not enough, the oldest amounts are removed. Of ended holdings, those
        that ended first are removed; of gaps, the oldest.
        """
        if len(self.hours) > MAX_HOURS:
            owned = sorted(key[0] for key in self.hours if key[2] is not None)
            until = owned[len(owned) // 2] if owned else 0
            for key in [key for key in self.hours if key[2] is not None and key[0] <= until]:
                hour, device, _ = key
                amounts = self.hours.pop(key)
                self.add(hour, device, None, amounts)
                self.unknown_hours[hour, device] += amounts[0]
                self.evicted["hours"] += 1
            for key in sorted(self.hours, key=itemgetter(0))[: len(self.hours) - MAX_HOURS]:
                del self.hours[key]
                self.evicted["hours"] += 1
        if len(self.holdings) > MAX_HOLDINGS:
            ended = [own_id for own_id, row in self.holdings.items() if row.holding.end is not None]
            ended.sort(key=lambda own_id: self.holdings[own_id].until_ns)
            for own_id in ended[: MAX_HOLDINGS // 2]:
                del self.holdings[own_id]
                self.evicted["holdings"] += 1
        while len(self.gaps) > MAX_HOLDINGS:
            del self.gaps[next(iter(self.gaps))]
            self.evicted["gaps"] += 1
        if len(self.pods) > MAX_HOURS + MAX_HOLDINGS:
            needed = {container for _, _, container in self.hours} | {
                row.holding.subject for row in self.holdings.values()
            }
            for subject in self.pods.keys() - needed:
                del self.pods[subject]


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return Amounts(
        one.held_ns + other.held_ns,
        _add_known(one.busy_ns, other.busy_ns),
        _add_known(one.energy_mj, other.energy_mj),
        _add_if_known(one.contested_ns, other.contested_ns),
        _add_if_known(one.switching_ns, other.switching_ns),
    )


def _add_later(one: Amounts, later: Amounts) -> Amounts:
    """Return the sum of two gains in an hour, of which the second is later.

    If the later busy time or energy is unknown and the earlier is 0, the sum is unknown: 0 would
    count for both.
    """
    both = _sum(one, later)
    return both._replace(
        busy_ns=both.busy_ns or None if later.busy_ns is None else both.busy_ns,
        energy_mj=both.energy_mj or None if later.energy_mj is None else both.energy_mj,
    )


def _add_if_known(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _add_known(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
