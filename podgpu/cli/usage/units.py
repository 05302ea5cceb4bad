"""Times and energies as text, in a unit in which a value that is not 0 can be read.

A table has one unit for its times and one for its energies, which depend on its values. A value
that is too small for the unit and the decimal places of its table is shown as `<0.001`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final, NamedTuple, Self

HOUR_NS: Final = 3_600 * 10**9
KWH_MJ: Final = 3_600_000 * 1_000

_MOST: Final = 10_000
"""A table has no smaller unit if its largest value would become as large as this."""


class Unit(NamedTuple):
    """A unit: its symbol, its number of base units, and its plural (only of times)."""

    symbol: str
    size: int
    plural: str = ""


_DAY: Final = Unit("d", 24 * HOUR_NS, "days")
TIMES: Final = (
    Unit("h", HOUR_NS, "hours"),
    Unit("min", HOUR_NS // 60, "minutes"),
    Unit("s", 10**9, "seconds"),
    Unit("ms", 10**6, "milliseconds"),
)
"""Units of times from the largest. The last one is not the unit of a table."""

ENERGIES: Final = (
    Unit("kWh", KWH_MJ),
    Unit("Wh", KWH_MJ // 1_000),
    Unit("J", 1_000),
    Unit("mJ", 1),
)
"""Units of energies from the largest. The last one is not the unit of a table."""

MEMORIES: Final = (Unit("GiB", 1 << 30), Unit("MiB", 1 << 20), Unit("KiB", 1 << 10), Unit("B", 1))


def scaled(value: int, unit: int, digits: int) -> str:
    """Return a number in a unit as text, such as `12.3`; `<0.1` if it is rounded to 0 but is not 0.

    Args:
        value: the number, in base units.
        unit: number of base units in the unit.
        digits: number of decimal places.
    """
    least = Decimal(1).scaleb(-digits)
    found = (Decimal(value) / unit).quantize(least, ROUND_HALF_EVEN)
    if value and not found:
        return f"<{least}" if value > 0 else f">-{least}"
    return f"{abs(found) if not value else found}"


def digits_of(smallest: int, unit: int) -> int:
    """Return the number of decimal places, at most 3, for three significant digits of a value.

    Args:
        smallest: the smallest value of a column that is not 0, in base units; 0 if there is none.
        unit: number of base units in the unit.
    """
    return next((digits for digits in range(3) if abs(smallest) >= unit * 10 ** (2 - digits)), 3)


def with_unit(value: int, units: Sequence[Unit]) -> str:
    """Return a value as text with the largest unit of which it has at least 1: `0.3 s`, `5.2 h`.

    Args:
        value: the value, in base units.
        units: the units from the largest. The last one is only for a value that is rounded to 0 in
            the last but one.
    """
    *usual, finest = units
    unit = next((each for each in usual if abs(value) >= each.size), usual[-1])
    if _is_lost(value, unit, 1):
        unit = finest
    return f"{scaled(value, unit.size, 1)} {unit.symbol}"


def span(ns: int) -> str:
    """Return a duration as text in one unit: `0.3 s`, `12.0 min`, `5.2 h`, `3.1 d`."""
    return with_unit(ns, (_DAY, *TIMES))


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit of a table's times or energies.

    Attributes:
        unit: the unit.
        digits: number of decimal places.
        units: all units of the quantity, for a value alone.
    """

    unit: Unit
    digits: int
    units: Sequence[Unit]

    @classmethod
    def of_times(cls, values: Iterable[int]) -> Self:
        """Return the scale for times, in nanoseconds: hours, minutes or seconds.

        It has one decimal place, and up to three if a value would be rounded to 0.
        """
        sizes = _sizes(values)
        unit = _chosen(sizes, [(unit, 1) for unit in TIMES[:-1]])
        least = next((size for size in sizes if not _is_lost(size, unit, 3)), 0)
        digits = next((one for one in (1, 2) if not _is_lost(least, unit, one)), 3)
        return cls(unit, digits, TIMES)

    @classmethod
    def of_energies(cls, values: Iterable[int]) -> Self:
        """Return the scale for energies, in millijoules: kWh, Wh or J."""
        sizes = _sizes(values)
        unit = _chosen(sizes, [(unit, 1) for unit in ENERGIES[:-1]])
        least = next((size for size in sizes if not _is_lost(size, unit, 3)), 0)
        return cls(unit, digits_of(least, unit.size), ENERGIES)

    def text(self, value: int) -> str:
        """Return a value as text, without the unit."""
        return scaled(value, self.unit.size, self.digits)

    def text_alone(self, value: int) -> str:
        """Return a value as text for a sentence; a value that is too small has its own unit."""
        if _is_lost(value, self.unit, self.digits):
            return with_unit(value, self.units)
        return self.text(value)


def _sizes(values: Iterable[int]) -> list[int]:
    return sorted({abs(value) for value in values if value})


def _chosen(sizes: Sequence[int], units: Sequence[tuple[Unit, int]]) -> Unit:
    """Return the largest unit, not above the largest value, in which no value is rounded to 0.

    A value that is rounded to 0 in each unit does not count.

    Args:
        sizes: the absolute values that are not 0, the smallest first.
        units: the units from the largest, each with its number of decimal places.
    """
    if not sizes:
        return units[0][0]
    largest = sizes[-1]
    smallest = next((size for size in sizes if not _is_lost(size, *units[-1])), largest)
    suitable = [each for each in units if largest >= each[0].size] or [units[-1]]
    unit, digits = suitable[0]
    for finer in suitable[1:]:
        if not _is_lost(smallest, unit, digits) or largest >= _MOST * finer[0].size:
            break
        unit, digits = finer
    return unit


def _is_lost(value: int, unit: Unit, digits: int) -> bool:
    """Whether a value is rounded to 0 but is not 0."""
    return scaled(value, unit.size, digits)[0] in "<>"
