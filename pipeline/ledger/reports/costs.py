"""What it cost, in whole units of the last digit that is shown, so that costs add up."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Final

from pipeline.ledger.reports.sums import sum_known
from pipeline.model.usage_window import UsageRow

DIGITS: Final = 2
"""Digits behind the point of a cost."""

_HOUR_NS: Final = 3_600 * 10**9
_KWH_MJ: Final = 3_600_000 * 1_000

_INSTANCE: Final = "MIG-"
_PROFILE: Final = re.compile(r"(?<![0-9A-Za-z.])([1-9][0-9]?)(?:c\.[1-9][0-9]?)?g\.[0-9]")
_FOUR: Final = re.compile(r"\bA30\b|\bRTX PRO 6000\b")
_SLICES: Final = 7


@dataclass(frozen=True, slots=True)
class Prices:
    """What is charged. A price is 0 or more.

    Attributes:
        gpu_hour: for an hour for which a whole GPU is held; None if that isn't charged.
        kwh: for a kilowatt hour; None likewise.
        currency: what they are in, for people.
    """

    gpu_hour: Decimal | None = None
    kwh: Decimal | None = None
    currency: str = ""

    @property
    def any(self) -> bool:
        """Whether anything is charged."""
        return self.gpu_hour is not None or self.kwh is not None


@dataclass(frozen=True, slots=True)
class Cost:
    """What something cost, exactly.

    Attributes:
        known: the sum of all that can be reckoned; None where nothing can.
        partial: something can't be, and is missing.
    """

    known: Fraction | None = None
    partial: bool = False


def gpu_fraction(device: str, name: str) -> Fraction | None:
    """Return which part of a GPU a device is, by compute slices.

    That is 2/7 for `2g.20gb`, and 1/7 for `1c.3g.40gb`, a compute instance of one slice. GPUs
    have 7, an A30 and an RTX PRO 6000 have 4 (NVIDIA's MIG user guide, "Supported MIG profiles").

    Args:
        device: uuid.
        name: model, or the profile of a MIG instance with the model of its GPU.

    Returns:
        1 for a whole GPU; None for an instance whose profile isn't known.
    """
    if not device.startswith(_INSTANCE):
        return Fraction(1)
    found = _PROFILE.search(name)
    if found is None:
        return None
    return Fraction(int(found[1]), 4 if _FOUR.search(name) else _SLICES)


def cost(usage: Iterable[UsageRow], parts: Mapping[str, Fraction | None], prices: Prices) -> Cost:
    """Return what several together cost, exactly.

    Args:
        usage: what they had.
        parts: which part of a GPU each device is.
        prices: what is charged.
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
            # What nothing was held of costs nothing, whatever it is.
            costs.append(Fraction(0) if not held_ns else None if part is None else part * held_ns)
        costs = [None if each is None else each * price for each in costs]
    if prices.kwh is not None:
        used = sum_known(energy)
        if used.known is not None:
            costs.append(used.known * Fraction(prices.kwh) / _KWH_MJ)
        if used.partial or used.known is None:
            costs.append(None)
    known = [each for each in costs if each is not None]
    if not known and (costs or not prices.any):
        return Cost()
    return Cost(sum(known, Fraction(0)), len(known) < len(costs))


def round_to_total(exact: Sequence[Fraction], digits: int = DIGITS) -> list[Decimal]:
    """Round so that the parts add up to the rounded sum, by the method of largest remainder.

    Args:
        exact: the parts, each 0 or more.
        digits: how many there are behind the point.

    Returns:
        As many as parts, each within one unit of the last digit; their sum is that of `exact`,
        rounded to the nearest (half to even).
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
