"""The report: rows that add up to the node's totals exactly."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple, Self

from pipeline.ledger.reports.costs import Cost, Prices, cost, gpu_fraction, round_to_total
from pipeline.ledger.reports.groups import GroupBy, GroupKey, group_usage
from pipeline.ledger.reports.sums import Sum, total_amounts
from pipeline.model.usage_window import DeviceTotal, UsageRow, UsageWindow


@dataclass(frozen=True, slots=True)
class Row:
    """What a group had, or nobody, or the whole node.

    Attributes:
        key: the group; None for what belongs to nobody, and for the total.
        held_ns: time for which containers held a device, by part.
        free_ns: time for which a device was free, by part.
        unknown_ns: time for which it isn't known who held a device.
        accounted_ns: the time of which `used` is a part: what is accounted for, of the device where
            the row is a device's, else of all; 0 where nothing is to be compared.
        known_holder_ns: the time of which `allocated` is a part: that without the time for which it
            isn't known who held the device.
        busy_ns: busy time.
        idle_ns: held time less busy time, of that alone of which busy time is known. Less than 0
            where more was used than was held.
        energy_mj: energy in millijoules.
        holdings: how many holdings lie in the span, or reach into it.
        cost: with two digits behind the point; None where nothing of it can be reckoned.
        cost_partial: something of it can't be, and is missing.
    """

    key: GroupKey | None
    held_ns: int
    free_ns: int
    unknown_ns: int
    accounted_ns: int
    known_holder_ns: int
    busy_ns: Sum
    idle_ns: Sum
    energy_mj: Sum
    holdings: int
    cost: Decimal | None
    cost_partial: bool

    @property
    def allocated(self) -> Fraction | None:
        """The part of the time for which containers held devices; None where that isn't known."""
        return Fraction(self.held_ns, self.known_holder_ns) if self.known_holder_ns else None

    @property
    def used(self) -> Fraction | None:
        """The part of the time for which devices were busy; None where that isn't known."""
        busy = self.busy_ns.known
        return Fraction(busy, self.accounted_ns) if busy is not None and self.accounted_ns else None

    @property
    def partial(self) -> bool:
        """Whether a figure of it lacks something that isn't known."""
        sums = (self.busy_ns, self.idle_ns, self.energy_mj)
        return self.cost_partial or any(each.partial for each in sums)


@dataclass(frozen=True, slots=True)
class Report:
    """What was used in a span of time, by groups.

    For held, free, unknown and busy time, energy, holdings and cost `total` is the sum of `rows`
    and `unattributed`, exactly, and for all but the last two that of the window's `DeviceTotal`
    too: held, free and unknown time together are what is accounted for.

    By device each row has all of its device, also what belongs to nobody.

    Attributes:
        window: what it was made of.
        by: by what it groups.
        prices: what was charged.
        rows: the groups; those that held the most first. By device, each device of the window.
        unattributed: what belongs to nobody; by device nothing.
        total: the node's.
    """

    window: UsageWindow
    by: GroupBy
    prices: Prices
    rows: tuple[Row, ...]
    unattributed: Row
    total: Row


def build_report(window: UsageWindow, by: GroupBy, prices: Prices) -> Report:
    """Group what was used.

    Args:
        window: what the ledger tells.
        by: by what to group.
        prices: what to charge.
    """
    names = {total.device: total.name for total in window.totals}
    parts = {
        device: gpu_fraction(device, names.get(device, ""))
        for device in {one.device for one in window.usage}
    }
    found = group_usage(window.usage, names, by)
    found.sort(key=lambda group: (-total_amounts(group[1]).held_ns, group[0].name))
    by_device = by.kind == "device"
    nobody = [] if by_device else [one for one in window.usage if one.container is None]
    groups: list[tuple[GroupKey | None, list[UsageRow]]] = [*found, (None, nobody)]
    costs = [cost(members, parts, prices) for _, members in groups]
    shown = _shown(costs)
    whole = _Times.of(window.totals)
    rows: list[Row] = []
    for (key, members), how, each in zip(groups, costs, shown, strict=True):
        if key is None:
            own, compared = (_NO_TIMES if by_device else whole), _NO_TIMES
        elif by_device:
            device = key.parts[0]
            own = compared = _Times.of(t for t in window.totals if t.device == device)
        else:
            own, compared = _NO_TIMES, whole
        rows.append(_row(key, members, (each, how.partial), own, compared))
    known = [each for each in shown if each is not None]
    partial = any(how.partial or how.known is None for how in costs)
    total = _row(
        None,
        window.usage,
        (sum(known, Decimal(0)) if known else None, bool(known) and partial and prices.any),
        whole,
        whole,
    )
    return Report(window, by, prices, tuple(rows[:-1]), rows[-1], total)


class _Times(NamedTuple):
    """Times of devices: what is accounted for, and for how much it isn't known who held them."""

    accounted_ns: int
    unknown_ns: int

    @classmethod
    def of(cls, totals: Iterable[DeviceTotal]) -> Self:
        several = list(totals)
        return cls(sum(t.accounted_ns for t in several), sum(t.unknown_ns for t in several))


_NO_TIMES: Final = _Times(0, 0)


def _row(
    key: GroupKey | None,
    members: Sequence[UsageRow],
    cost: tuple[Decimal | None, bool],
    own: _Times,
    compared: _Times,
) -> Row:
    had = total_amounts(members)
    unknown_ns = min(own.unknown_ns, had.unheld_ns)
    return Row(
        key=key,
        held_ns=had.held_ns,
        free_ns=had.unheld_ns - unknown_ns,
        unknown_ns=unknown_ns,
        accounted_ns=compared.accounted_ns,
        known_holder_ns=max(compared.accounted_ns - compared.unknown_ns, 0),
        busy_ns=had.busy_ns,
        idle_ns=had.idle_ns,
        energy_mj=had.energy_mj,
        holdings=had.holdings,
        cost=cost[0],
        cost_partial=cost[1],
    )


def _shown(costs: Sequence[Cost]) -> list[Decimal | None]:
    """Return costs to the last digit that is shown; they add up."""
    known = iter(round_to_total([each.known for each in costs if each.known is not None]))
    return [None if each.known is None else next(known) for each in costs]
