"""The report: rows that add up to the node's totals exactly."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pipeline.ledger.reporting.grouping import By, Key, grouped
from pipeline.ledger.reporting.prices import Cost, Prices, cost, part_of, rounded
from pipeline.ledger.reporting.sums import Sum, amounts
from pipeline.ledger.window import Spent, Window


@dataclass(frozen=True, slots=True)
class Row:
    """What a group had, or nobody, or the whole node.

    Attributes:
        key: the group; None for what belongs to nobody, and for the total.
        held_ns: held time; of nobody, the time for which nobody held a device, by part.
        busy_ns: busy time.
        idle_ns: held time less busy time, of that alone of which busy time is known. Less than 0
            where more was used than was held.
        energy_mj: energy in millijoules.
        holdings: how many holdings lie in the span, or reach into it.
        cost: with two digits behind the point; None where nothing of it can be reckoned.
        cost_partial: something of it can't be, and is missing.
    """

    key: Key | None
    held_ns: int
    busy_ns: Sum
    idle_ns: Sum
    energy_mj: Sum
    holdings: int
    cost: Decimal | None
    cost_partial: bool

    @property
    def partial(self) -> bool:
        """Whether a figure of it lacks something that isn't known."""
        sums = (self.busy_ns, self.idle_ns, self.energy_mj)
        return self.cost_partial or any(each.partial for each in sums)


@dataclass(frozen=True, slots=True)
class Report:
    """What was used in a span of time, by groups.

    For held time, busy time, energy, holdings and cost `total` is the sum of `rows` and
    `unattributed`, exactly, and for all but the last two that of the window's `DeviceTotal` too.

    Attributes:
        window: what it was made of.
        by: by what it groups.
        prices: what was charged.
        rows: the groups; those that held the most first.
        unattributed: what belongs to nobody.
        total: the node's.
    """

    window: Window
    by: By
    prices: Prices
    rows: tuple[Row, ...]
    unattributed: Row
    total: Row


def report(window: Window, by: By, prices: Prices) -> Report:
    """Group what was used.

    Args:
        window: what the ledger tells.
        by: by what to group.
        prices: what to charge.
    """
    names = {total.device: total.name for total in window.totals}
    parts = {
        device: part_of(device, names.get(device, ""))
        for device in {one.device for one in window.spent}
    }
    found = grouped(window.spent, names, by)
    found.sort(key=lambda group: (-sum(one.held_ns for one in group[1]), group[0].name))
    nobody = [one for one in window.spent if one.whose is None]
    groups: list[tuple[Key | None, list[Spent]]] = [*found, (None, nobody)]
    costs = [cost(members, parts, prices) for _, members in groups]
    shown = _shown(costs)
    rows = [
        _row(key, members, cost, how.partial)
        for (key, members), how, cost in zip(groups, costs, shown, strict=True)
    ]
    known = [each for each in shown if each is not None]
    partial = any(how.partial or how.known is None for how in costs)
    total = _row(
        None,
        window.spent,
        sum(known, Decimal(0)) if known else None,
        bool(known) and partial and prices.any,
    )
    return Report(window, by, prices, tuple(rows[:-1]), rows[-1], total)


def _row(
    key: Key | None, members: Sequence[Spent], cost: Decimal | None, cost_partial: bool
) -> Row:
    had = amounts(members)
    return Row(
        key=key,
        held_ns=had.held_ns,
        busy_ns=had.busy_ns,
        idle_ns=had.idle_ns,
        energy_mj=had.energy_mj,
        holdings=had.holdings,
        cost=cost,
        cost_partial=cost_partial,
    )


def _shown(costs: Sequence[Cost]) -> list[Decimal | None]:
    """Return costs to the last digit that is shown; they add up."""
    known = iter(rounded([each.known for each in costs if each.known is not None]))
    return [None if each.known is None else next(known) for each in costs]
