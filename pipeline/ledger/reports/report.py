"""The usage report: its rows sum exactly to the node's totals."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from pipeline.ledger.reports.costs import (
    Prices,
    Sum,
    cost,
    gpu_fraction,
    round_to_total,
    sum_known,
)
from pipeline.ledger.reports.groups import GroupBy, GroupKey, group_usage
from pipeline.model.ledger_usage import DeviceTotal, UsageRow, UsageWindow


@dataclass(frozen=True, slots=True)
class Row:
    """The usage of a group, the unattributed usage, or the usage of the whole node.

    Attributes:
        key: the group; None for unattributed usage and for the total.
        held_ns: time for which containers held a device, multiplied by their share.
        free_ns: time for which a device was free, multiplied by the free share.
        unknown_ns: time for which it is unknown who held a device.
        accounted_ns: the counted time that `used` is a fraction of: that of the device if the row
            is a device's, else of all devices; 0 for the unattributed usage.
        known_holder_ns: the time that `allocated` is a fraction of: `accounted_ns` without the time
            for which it is unknown who held the device.
        busy_ns: busy time.
        idle_ns: held time minus busy time, of usage with a known busy time. Negative if devices
            were busy for longer than they were held.
        energy_mj: energy in millijoules.
        holdings: number of holdings that overlap the span of time.
        cost: cost with two decimal places; None if no part of it can be calculated.
        cost_partial: whether a part of the cost cannot be calculated and is missing.
    """

    key: GroupKey | None
    held_ns: int
    free_ns: int
    unknown_ns: int
    accounted_ns: int
    known_holder_ns: int
    busy_ns: Sum[int]
    idle_ns: Sum[int]
    energy_mj: Sum[int]
    holdings: int
    cost: Decimal | None
    cost_partial: bool

    @property
    def allocated(self) -> Fraction | None:
        """The fraction of time for which containers held devices; None if unknown."""
        return Fraction(self.held_ns, self.known_holder_ns) if self.known_holder_ns else None

    @property
    def used(self) -> Fraction | None:
        """The fraction of time for which devices were busy; None if unknown."""
        busy = self.busy_ns.known
        return Fraction(busy, self.accounted_ns) if busy is not None and self.accounted_ns else None

    @property
    def partial(self) -> bool:
        """Whether a part of one of the amounts is unknown and missing."""
        sums = (self.busy_ns, self.idle_ns, self.energy_mj)
        return self.cost_partial or any(each.partial for each in sums)


@dataclass(frozen=True, slots=True)
class Report:
    """The usage in a span of time by groups.

    For held, free, unknown and busy time, energy, holdings and cost, `total` is exactly the sum of
    `rows` and `unattributed`. Except for holdings and cost it is also the sum of the window's
    `DeviceTotal`; held, free and unknown time together are the counted time.

    Grouped by device, a row contains all usage of its device, including the unattributed usage.

    Attributes:
        window: the usage that was grouped.
        by: how it was grouped.
        prices: the prices.
        rows: the groups, those with the most held time first. By device: all devices of the window,
            in its order.
        unattributed: usage that belongs to no container; without any usage if grouped by device.
        total: the usage of the node.
    """

    window: UsageWindow
    by: GroupBy
    prices: Prices
    rows: tuple[Row, ...]
    unattributed: Row
    total: Row


def build_report(window: UsageWindow, by: GroupBy, prices: Prices) -> Report:
    """Return the report on the usage in a span of time.

    Args:
        window: the usage from the ledger.
        by: how to group it.
        prices: the prices.
    """
    names = {total.device: total.name for total in window.totals}
    parts = {
        device: gpu_fraction(device, names.get(device, ""))
        for device in {one.device for one in window.usage}
    }
    by_device = by.kind == "device"
    timeless = {one.device for one in window.totals if not one.accounted_ns}
    found = group_usage(window.usage, window.totals, by)
    if by_device:
        place = {total.device: at for at, total in enumerate(window.totals)}
        found.sort(key=lambda group: place.get(group[0].parts[0] or "", len(place)))
    else:
        found.sort(key=lambda group: (-sum(map(_held, group[1])), group[0].name))
    unattributed = [] if by_device else [one for one in window.usage if one.container is None]
    groups: list[tuple[GroupKey | None, list[UsageRow]]] = [*found, (None, unattributed)]
    costs = [cost(members, parts, prices) for _, members in groups]
    parts_of_total = iter(round_to_total([each.known for each in costs if each.known is not None]))
    rounded = [None if each.known is None else next(parts_of_total) for each in costs]
    rows: list[Row] = []
    for (key, members), group_cost, each in zip(groups, costs, rounded, strict=True):
        times: Sequence[DeviceTotal] = ()
        compared: Sequence[DeviceTotal] = ()
        if key is None:
            times = () if by_device else window.totals
        elif by_device:
            times = compared = [one for one in window.totals if one.device == key.parts[0]]
        else:
            compared = window.totals
        rows.append(
            _row(key, members, (each, group_cost.partial), times, compared, timeless=timeless)
        )
    known = [each for each in rounded if each is not None]
    partial = any(group_cost.partial or group_cost.known is None for group_cost in costs)
    total = _row(
        None,
        window.usage,
        (sum(known, Decimal(0)) if known else None, bool(known) and partial and prices.any),
        window.totals,
        window.totals,
        timeless=timeless,
    )
    return Report(window, by, prices, tuple(rows[:-1]), rows[-1], total)


def _row(
    key: GroupKey | None,
    members: Sequence[UsageRow],
    cost: tuple[Decimal | None, bool],
    times: Sequence[DeviceTotal],
    compared: Sequence[DeviceTotal],
    *,
    timeless: Collection[str],
) -> Row:
    """Return the row of a group.

    Args:
        key: the group.
        members: usage of the group.
        cost: cost of the group, and whether a part of the cost is missing.
        times: totals of the devices whose unattributed time is in the row.
        compared: totals of the devices whose time the group's usage is a fraction of.
        timeless: devices without counted time, as GPUs with MIG instances.
    """
    unheld_ns = sum(one.held_ns for one in members if one.container is None)
    unknown_ns = min(sum(one.unknown_ns for one in times), unheld_ns)
    accounted_ns = sum(one.accounted_ns for one in compared)
    # A GPU with MIG instances has only energy: its instances have its time. So its busy time is not
    # a missing part of the sum.
    timed: Sequence[UsageRow] = [
        one
        for one in members
        if one.device not in timeless or one.busy_ns is not None or one.held_ns or one.container
    ]
    if key is not None:
        timed = timed or members
    return Row(
        key=key,
        held_ns=sum(map(_held, members)),
        free_ns=unheld_ns - unknown_ns,
        unknown_ns=unknown_ns,
        accounted_ns=accounted_ns,
        known_holder_ns=max(accounted_ns - sum(one.unknown_ns for one in compared), 0),
        busy_ns=sum_known((one.busy_ns for one in timed), 0),
        idle_ns=sum_known(map(_idle, timed), 0),
        energy_mj=sum_known((one.energy_mj for one in members), 0),
        holdings=sum(one.holdings for one in members),
        cost=cost[0],
        cost_partial=cost[1],
    )


def _held(one: UsageRow) -> int:
    return 0 if one.container is None else one.held_ns


def _idle(one: UsageRow) -> int | None:
    return None if one.busy_ns is None else _held(one) - one.busy_ns
