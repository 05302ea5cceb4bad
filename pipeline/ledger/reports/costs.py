"""Cost of usage, rounded so that the costs of a report sum to its total."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Final, Generic, TypeVar

from pipeline.model.ledger_usage import UsageRow

DIGITS: Final = 2
"""Number of decimal places of a cost."""

_HOUR_NS: Final = 3_600 * 10**9
_KWH_MJ: Final = 3_600_000 * 1_000

_INSTANCE: Final = "MIG-"
_PROFILE: Final = re.compile(r"(?<![0-9A-Za-z.])([1-9][0-9]?)(?:c\.[1-9][0-9]?)?g\.[0-9]")
_FOUR: Final = re.compile(r"\bA30\b|\bRTX PRO 6000\b")
_SLICES: Final = 7


Number = TypeVar("Number", int, Fraction)


@dataclass(frozen=True, slots=True)
class Sum(Generic[Number]):
    """The sum of amounts, as far as it is known.

    Attributes:
        known: the sum of the known amounts; None if there are amounts and none is known.
        partial: whether some amounts are known and others are not; False if none is known.
    """

    known: Number | None = None
    partial: bool = False


def sum_known(values: Iterable[Number | None], zero: Number) -> Sum[Number]:
    """Return the sum of the known values; `zero` if there are no values at all."""
    rows = list(values)
    known = [value for value in rows if value is not None]
    if rows and not known:
        return Sum()
    return Sum(sum(known, zero), len(known) < len(rows))


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices, each 0 or more.

    Attributes:
        gpu_hour: price of holding a whole GPU for an hour; None if it is not charged.
        kwh: price of a kilowatt hour; None if it is not charged.
        currency: the currency, for reports.
    """

    gpu_hour: Decimal | None = None
    kwh: Decimal | None = None
    currency: str = ""

    @property
    def any(self) -> bool:
        """Whether there is any price."""
        return self.gpu_hour is not None or self.kwh is not None


def gpu_fraction(device: str, name: str) -> Fraction | None:
    """Return which fraction of a GPU a device is, by the number of compute slices.

    This is 2/7 for `2g.20gb`, and 1/7 for `1c.3g.40gb`, a compute instance with one slice. GPUs
    have 7 slices; an A30 and an RTX PRO 6000 have 4 (NVIDIA's MIG user guide, "Supported MIG
    profiles").

    Args:
        device: uuid of the device.
        name: model, or the profile of a MIG instance with the model of its GPU.

    Returns:
        The fraction; 1 for a whole GPU, None for a MIG instance whose profile is unknown.
    """
    if not device.startswith(_INSTANCE):
        return Fraction(1)
    found = _PROFILE.search(name)
    if found is None:
        return None
    return Fraction(int(found[1]), 4 if _FOUR.search(name) else _SLICES)


def cost(
    usage: Iterable[UsageRow], parts: Mapping[str, Fraction | None], prices: Prices
) -> Sum[Fraction]:
    """Return the exact cost of several usage rows together, as far as it is known.

    Args:
        usage: the rows.
        parts: the fraction of a GPU that each device is, by uuid; None if unknown.
        prices: the prices.
    """
    held: dict[str, int] = {}
    energy: list[int | None] = []
    for one in usage:
        held[one.device] = held.get(one.device, 0) + one.held_ns
        energy.append(one.energy_mj)
    costs: list[Fraction | None] = []
    if prices.gpu_hour is not None:
        price = Fraction(prices.gpu_hour) / _HOUR_NS
        for device, held_ns in held.items():
            part = parts.get(device)
            # Without held time the cost is 0, even if the device's fraction is unknown.
            costs.append(Fraction(0) if not held_ns else None if part is None else part * held_ns)
        costs = [None if each is None else each * price for each in costs]
    if prices.kwh is not None:
        used = sum_known(energy, 0)
        if used.known is not None:
            costs.append(used.known * Fraction(prices.kwh) / _KWH_MJ)
        if used.partial or used.known is None:
            costs.append(None)
    return sum_known(costs, Fraction(0)) if prices.any else Sum()


def round_to_total(exact: Sequence[Fraction], digits: int = DIGITS) -> list[Decimal]:
    """Round parts so that they sum to the rounded total, by the largest remainder method.

    Args:
        exact: the parts, each 0 or more.
        digits: the number of decimal places.

    Returns:
        The rounded parts; each differs from its part by less than one unit of the last digit. Their
        sum is that of `exact`, rounded to the nearest, half to even.
    """
    unit = 10**digits
    scaled = [part * unit for part in exact]
    units = [floor(part) for part in scaled]
    left = round(sum(scaled, Fraction(0))) - sum(units)
    by_rest = sorted(
        range(len(scaled)), key=lambda place: scaled[place] - units[place], reverse=True
    )
    for place in by_rest[:left]:
        units[place] += 1
    return [Decimal(number).scaleb(-digits) for number in units]
