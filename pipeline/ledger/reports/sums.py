"""Sums of amounts that may be unknown. Unknown is not 0; a sum says whether a part is missing."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.model.usage_window import UsageRow


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of amounts, as far as it is known.

    Attributes:
        known: the sum of the known amounts; None if none is known.
        partial: whether an amount is unknown and missing in the sum.
    """

    known: int | None = None
    partial: bool = False


def sum_known(values: Iterable[int | None]) -> Sum:
    """Return the sum of the known values; 0 if there are no values at all."""
    rows = list(values)
    known = [value for value in rows if value is not None]
    if rows and not known:
        return Sum()
    return Sum(sum(known), len(known) < len(rows))


@dataclass(frozen=True, slots=True)
class Amounts:
    """The totals of several usage rows.

    Attributes:
        held_ns: time for which containers held a device, by share.
        unheld_ns: time for which no container did.
        busy_ns: busy time.
        idle_ns: held time minus busy time, of usage with a known busy time. Below 0 if more was
            used than held.
        energy_mj: energy in millijoules.
        holdings: number of holdings.
    """

    held_ns: int
    unheld_ns: int
    busy_ns: Sum
    idle_ns: Sum
    energy_mj: Sum
    holdings: int


def total_amounts(usage: Iterable[UsageRow]) -> Amounts:
    """Return the totals of usage rows."""
    rows = list(usage)
    return Amounts(
        held_ns=sum(_held(one) for one in rows),
        unheld_ns=sum(one.held_ns for one in rows if one.container is None),
        busy_ns=sum_known(one.busy_ns for one in rows),
        idle_ns=sum_known(_idle(one) for one in rows),
        energy_mj=sum_known(one.energy_mj for one in rows),
        holdings=sum(one.holdings for one in rows),
    )


def _held(one: UsageRow) -> int:
    return 0 if one.container is None else one.held_ns


def _idle(one: UsageRow) -> int | None:
    return None if one.busy_ns is None else _held(one) - one.busy_ns
