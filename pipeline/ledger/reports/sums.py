"""Adding up what may be unknown: unknown isn't 0, and a sum says what it lacks."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.model.usage_window import UsageRow


@dataclass(frozen=True, slots=True)
class Sum:
    """What is known of a quantity.

    Attributes:
        known: the sum of all that is known; None where nothing of it is.
        partial: a part of it isn't known, and is missing in the sum.
    """

    known: int | None = None
    partial: bool = False


def sum_known(values: Iterable[int | None]) -> Sum:
    """Return the sum of what is known; that of nothing at all is 0."""
    every = list(values)
    known = [value for value in every if value is not None]
    if every and not known:
        return Sum()
    return Sum(sum(known), len(known) < len(every))


@dataclass(frozen=True, slots=True)
class Amounts:
    """What several had together.

    Attributes:
        held_ns: time for which containers held a device, by part.
        unheld_ns: time for which none did.
        busy_ns: busy time.
        idle_ns: held time less busy time, of that alone of which busy time is known. Less than 0
            where more was used than was held.
        energy_mj: energy in millijoules.
        holdings: how many holdings.
    """

    held_ns: int
    unheld_ns: int
    busy_ns: Sum
    idle_ns: Sum
    energy_mj: Sum
    holdings: int


def total_amounts(usage: Iterable[UsageRow]) -> Amounts:
    """Return what all of them come to."""
    every = list(usage)
    return Amounts(
        held_ns=sum(_held(one) for one in every),
        unheld_ns=sum(one.held_ns for one in every if one.container is None),
        busy_ns=sum_known(one.busy_ns for one in every),
        idle_ns=sum_known(_idle(one) for one in every),
        energy_mj=sum_known(one.energy_mj for one in every),
        holdings=sum(one.holdings for one in every),
    )


def _held(one: UsageRow) -> int:
    return 0 if one.container is None else one.held_ns


def _idle(one: UsageRow) -> int | None:
    return None if one.busy_ns is None else _held(one) - one.busy_ns
