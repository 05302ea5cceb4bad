"""The usage report: its rows sum exactly to the totals of the devices."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from pipeline.ledger.reports.costs import Tariff, cost, round_to_total
from pipeline.ledger.reports.grouped_usage import GroupedUsage
from pipeline.ledger.reports.groups import GroupBy, GroupKey, Parts
from pipeline.ledger.reports.sums import Sum, Tally
from pipeline.ledger.reports.window_groups import grouped
from pipeline.model.ledger_usage import DeviceTotal, UsageWindow
from pipeline.model.split_error import split_error_ns


@dataclass(frozen=True, slots=True)
class Row:
    """The usage of a group, of no known container, or the total.

    Attributes:
        key: the group; None for free time, unknown time, unattributed usage and the total.
        held_ns: time for which containers held a device, multiplied by their share.
        free_ns: time for which a device was free, multiplied by the free share.
        unknown_ns: time for which it is unknown who held a device.
        accounted_ns: the counted time that `used` is a fraction of: that of its devices if the row
            is of devices, else that of all devices; 0 for free and unknown time and unattributed
            usage.
        known_holder_ns: the time that `allocated` is a fraction of: `accounted_ns` without the time
            for which it is unknown who held the device.
        busy_ns: busy time.
        idle_ns: held time minus busy time, of usage with a known busy time. Negative if devices
            were busy for longer than they were held.
        energy_mj: energy in millijoules.
        holdings: number of holdings that overlap the span of time; None if it is unknown.
        cost: cost with two decimal places; None if no part of it can be calculated.
        cost_partial: whether a part of the cost cannot be calculated and is missing.
        contested_ns: see `ContainerUsage`, for the known part of `busy_ns`. 0 for all usage of
            devices, which is not split; None if it is unknown for a part, and for usage of no known
            container.
        switching_ns: the same.
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
    holdings: int | None
    cost: Decimal | None
    cost_partial: bool
    contested_ns: int | None
    switching_ns: int | None

    @property
    def busy_error_ns(self) -> int | None:
        """By how much the known part of `busy_ns` may be wrong; None if unknown."""
        return split_error_ns(self.contested_ns, self.switching_ns)

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
    `rows`, `free`, `unknown` and `unattributed`. Except for holdings and cost it is also the sum of
    the window's `DeviceTotal`; held, free and unknown time together are the counted time.

    Grouped by device, node, cluster or model, a row contains all usage of its devices, including
    free and unknown time and unattributed usage.

    The bound of the error of busy time, `busy_error_ns`, is not a sum. That of devices and of
    `total` is 0, because only the split between containers is uncertain.

    Attributes:
        window: the time span and the devices.
        by: how it was grouped.
        prices: the prices.
        rows: the groups, those with the most held time first. By device: all devices of the window,
            in its order.
        free: time for which devices were free; 0 if grouped by device, node, cluster or model.
        unknown: time with unknown holders; 0 if grouped by device, node, cluster or model.
        unattributed: busy time and energy of no known container; without any usage if grouped by
            device, node, cluster or model.
        total: the usage of all devices.
    """

    window: UsageWindow
    by: GroupBy
    prices: Tariff
    rows: tuple[Row, ...]
    free: Row
    unknown: Row
    unattributed: Row
    total: Row

    @property
    def without_container(self) -> tuple[Row, Row, Row]:
        """The rows of no known container."""
        return self.free, self.unknown, self.unattributed


def build_report(window: UsageWindow, by: GroupBy, prices: Tariff) -> Report:
    """Return the report on the usage in a span of time.

    Args:
        window: the usage from the ledger.
        by: how to group it.
        prices: the prices.
    """
    return report_of_groups(window, by, prices, grouped(window, by))


def report_of_groups(
    window: UsageWindow, by: GroupBy, prices: Tariff, usage: Iterable[GroupedUsage]
) -> Report:
    """Return the report on usage that is already grouped and summed.

    Args:
        window: the time span, the devices and the gaps. Its `usage` is not used.
        by: how `usage` was grouped.
        prices: the prices.
        usage: the usage, in any order. If grouped by device, each device of the window has a part.
    """
    by_group: dict[GroupKey, list[GroupedUsage]] = {}
    free: list[GroupedUsage] = []
    unknown: list[GroupedUsage] = []
    rest: list[GroupedUsage] = []
    whole = _Amounts()
    for one in usage:
        whole.add(one)
        if one.key is not None:
            by_group.setdefault(one.key, []).append(one)
            continue
        free.append(GroupedUsage(None, one.price, free_ns=one.free_ns))
        unknown.append(GroupedUsage(None, one.price, unknown_ns=one.unknown_ns))
        rest.append(replace(one, free_ns=0, unknown_ns=0))
    found = [(key, parts, _sum(parts)) for key, parts in by_group.items()]
    if by.kind == "device":
        place = {_device_parts(by, one): at for at, one in enumerate(window.totals)}
        found.sort(key=lambda group: place.get(group[0].parts[:-1], len(place)))
    else:
        found.sort(key=lambda group: (-group[2].held_ns, group[0].name, str(group[0].parts)))
    groups: list[tuple[GroupKey | None, list[GroupedUsage], _Amounts]] = [*found]
    groups += [(None, parts, _sum(parts)) for parts in (free, unknown, rest)]
    costs = [cost(parts, prices) for _, parts, _ in groups]
    parts_of_total = iter(round_to_total([each.known for each in costs if each.known is not None]))
    rounded = [None if each.known is None else next(parts_of_total) for each in costs]
    rows = []
    for (key, _, amounts), each, exact in zip(groups, rounded, costs, strict=True):
        compared = None if key is None else amounts if by.is_of_devices else whole
        of_devices = key is not None and by.is_of_devices
        rows.append(_row(key, amounts, compared, (each, exact.partial), unsplit=of_devices))
    known = [each for each in rounded if each is not None]
    partial = any(each.partial or each.known is None for each in costs) and bool(known)
    total_cost = sum(known, Decimal(0)) if known else None
    total = _row(None, whole, whole, (total_cost, partial), unsplit=True)
    *of_groups, of_free, of_unknown, of_rest = rows
    return Report(window, by, prices, tuple(of_groups), of_free, of_unknown, of_rest, total)


def _device_parts(by: GroupBy, one: DeviceTotal) -> Parts:
    place = (one.cluster or None, one.node or None) if by.several_nodes else ()
    return *place, one.device


class _Amounts:
    """Sums of grouped usage."""

    def __init__(self) -> None:
        self.held_ns = self.free_ns = self.unknown_ns = 0
        self.holdings: Tally[int] = Tally()
        self.busy_ns: Tally[int] = Tally()
        self.idle_ns: Tally[int] = Tally()
        self.energy_mj: Tally[int] = Tally()
        self.contested_ns: Tally[int] = Tally()
        self.switching_ns: Tally[int] = Tally()

    def add(self, one: GroupedUsage) -> None:
        self.held_ns += one.held_ns
        self.free_ns += one.free_ns
        self.unknown_ns += one.unknown_ns
        self.holdings += Tally.of(one.holdings)
        self.busy_ns += one.busy_ns
        self.idle_ns += one.idle_ns
        self.energy_mj += one.energy_mj
        self.contested_ns += one.contested_ns
        self.switching_ns += one.switching_ns

    @property
    def known_holder_ns(self) -> int:
        return self.held_ns + self.free_ns


def _sum(parts: Iterable[GroupedUsage]) -> _Amounts:
    found = _Amounts()
    for one in parts:
        found.add(one)
    return found


def _row(
    key: GroupKey | None,
    amounts: _Amounts,
    compared: _Amounts | None,
    cost: tuple[Decimal | None, bool],
    *,
    unsplit: bool,
) -> Row:
    """Return the row of a group.

    Args:
        key: the group.
        amounts: the sums of the group.
        compared: the sums whose time the group's usage is a fraction of; None if there are none.
        cost: cost of the group, and whether a part of the cost is missing.
        unsplit: whether the usage is all usage of devices.
    """
    known_holder_ns = 0 if compared is None else compared.known_holder_ns
    accounted_ns = 0 if compared is None else known_holder_ns + compared.unknown_ns
    # A device without counted time, such as a GPU with MIG instances, has only energy. Its busy
    # time is not 0.
    timeless = key is not None and amounts.busy_ns.is_empty
    busy_ns: Sum[int] = Sum() if timeless else amounts.busy_ns.sum(0)
    contest: tuple[int | None, int | None] = None, None
    if busy_ns.known is not None and unsplit:
        contest = 0, 0
    elif busy_ns.known is not None and key is not None:
        contest = _whole(amounts.contested_ns), _whole(amounts.switching_ns)
    return Row(
        key=key,
        held_ns=amounts.held_ns,
        free_ns=amounts.free_ns,
        unknown_ns=amounts.unknown_ns,
        accounted_ns=accounted_ns,
        known_holder_ns=known_holder_ns,
        busy_ns=busy_ns,
        idle_ns=Sum() if timeless else amounts.idle_ns.sum(0),
        energy_mj=amounts.energy_mj.sum(0),
        holdings=amounts.holdings.sum(0).known,
        cost=cost[0],
        cost_partial=cost[1],
        contested_ns=contest[0],
        switching_ns=contest[1],
    )


def _whole(amounts: Tally[int]) -> int | None:
    """Return a sum; 0 of no amounts, None if one is unknown."""
    return None if amounts.missing else amounts.known or 0
