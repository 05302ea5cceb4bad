"""Cost of usage, rounded so that the costs of a report sum to its total."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Final, Literal, Protocol, TypeAlias

from pipeline.ledger.reports.grouped_usage import GroupedUsage, PriceClass
from pipeline.ledger.reports.sums import Sum, Tally

DIGITS: Final = 2
"""Number of decimal places of a cost."""

_HOUR_NS: Final = 3_600 * 10**9
_KWH_MJ: Final = 3_600_000 * 1_000

_PROFILE: Final = re.compile(r"(?<![0-9A-Za-z.])([1-9][0-9]?)(?:c\.[1-9][0-9]?)?g\.[0-9]")
_FOUR: Final = re.compile(r"\bA30\b|\bRTX PRO 6000\b")
_SLICES: Final = 7


State: TypeAlias = Literal["held", "free", "unknown"]
"""Whether a container held a device, it was free, or its holder is unknown."""


class Tariff(Protocol):
    """Prices by device and time."""

    @property
    def currency(self) -> str:
        """The currency, for reports; empty if it is not stated."""

    @property
    def charges_time(self) -> bool:
        """Whether the time of devices has a price."""

    @property
    def charges_energy(self) -> bool:
        """Whether energy has a price."""

    @property
    def changes(self) -> Sequence[int]:
        """The moments at which prices change: full hours in nanoseconds of Unix time, sorted."""

    def hour_price(self, one: PriceClass, state: State) -> Fraction | None:
        """Return the price of an hour of a device, 0 or more; None if it is unknown."""

    def kwh_price(self, one: PriceClass) -> Fraction | None:
        """Return the price of a kilowatt hour, 0 or more; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices that do not change, each 0 or more.

    Attributes:
        gpu_hour: price of holding a whole GPU for an hour; None if it is not charged.
        kwh: price of a kilowatt hour; None if it is not charged.
        currency: the currency, for reports.
    """

    gpu_hour: Decimal | None = None
    kwh: Decimal | None = None
    currency: str = ""

    @property
    def charges_time(self) -> bool:
        """Whether the time of devices has a price."""
        return self.gpu_hour is not None

    @property
    def charges_energy(self) -> bool:
        """Whether energy has a price."""
        return self.kwh is not None

    @property
    def changes(self) -> Sequence[int]:
        """The moments at which prices change: none."""
        return ()

    def hour_price(self, one: PriceClass, state: State) -> Fraction | None:  # noqa: ARG002
        """Return the price of an hour of a device; None if its fraction of a GPU is unknown."""
        part = gpu_fraction(one)
        return None if part is None else part * Fraction(self.gpu_hour or 0)

    def kwh_price(self, one: PriceClass) -> Fraction | None:  # noqa: ARG002
        """Return the price of a kilowatt hour, which is the same for all devices."""
        return Fraction(self.kwh or 0)


def gpu_fraction(one: PriceClass) -> Fraction | None:
    """Return which fraction of a GPU a device is, by the number of compute slices.

    This is 2/7 for `2g.20gb`, and 1/7 for `1c.3g.40gb`, a compute instance with one slice. GPUs
    have 7 slices; an A30 and an RTX PRO 6000 have 4 (NVIDIA's MIG user guide, "Supported MIG
    profiles").

    Args:
        one: the model and the profile.

    Returns:
        The fraction; 1 for a whole GPU, None for a MIG instance whose profile is unknown.
    """
    if not one.is_instance:
        return Fraction(1)
    # In ledgers of earlier versions, the model of an instance may contain its profile.
    name = f"{one.model} {one.profile}"
    found = _PROFILE.search(name)
    if found is None:
        return None
    return Fraction(int(found[1]), 4 if _FOUR.search(name) else _SLICES)


def cost(usage: Iterable[GroupedUsage], prices: Tariff) -> Sum[Fraction]:
    """Return the exact cost of usage, as far as it is known; unknown without prices.

    Args:
        usage: the usage. All of its time is charged: held, free and unknown.
        prices: the prices.
    """
    found: Tally[Fraction] = Tally()
    times: Counter[tuple[PriceClass, State]] = Counter()
    energies: dict[PriceClass, Tally[int]] = {}
    for one in usage:
        times[one.price, "held"] += one.held_ns
        times[one.price, "free"] += one.free_ns
        times[one.price, "unknown"] += one.unknown_ns
        energies[one.price] = energies.get(one.price, Tally()) + one.energy_mj
    if prices.charges_time:
        for (price_class, state), ns in times.items():
            if not ns:
                continue  # the cost is 0, even if the price is unknown
            price = prices.hour_price(price_class, state)
            found += Tally.of(None if price is None else price * ns / _HOUR_NS)
    if prices.charges_energy:
        for price_class, energy in energies.items():
            price = prices.kwh_price(price_class) if energy.known else Fraction(0)
            if energy.known is not None:
                found += Tally.of(None if price is None else energy.known * price / _KWH_MJ)
            if energy.missing:
                found += Tally.of(None)
    if not (prices.charges_time or prices.charges_energy):
        return Sum()
    return found.sum(Fraction(0))


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
