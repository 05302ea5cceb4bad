"""Quantities of extended resources, in the format of Kubernetes."""

import re
from fractions import Fraction
from typing import Final

_FORM: Final = re.compile(
    r"([+-]?)([0-9]{1,18})(?:\.([0-9]{0,18}))?"
    r"(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"
)
_DECIMAL: Final = {
    suffix: Fraction(10) ** power
    for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
}
_BINARY: Final = {f"{suffix}i": Fraction(1024) ** n for n, suffix in enumerate("KMGTPE", 1)}
_FACTORS: Final = {**_DECIMAL, **_BINARY, "": Fraction(1)}
_MOST: Final = 2**63 - 1


def whole(value: str | int | float) -> int:
    """Return a quantity of an extended resource, which must be a whole number.

    The API server writes quantities as text, and large round ones with a suffix: `2k`
    (k8s.io/apimachinery/pkg/api/resource).

    Args:
        value: a text such as `4` or `2k`, or a number.

    Raises:
        ValueError: it is no quantity, not a whole number, or below 0.
    """
    match = _FORM.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{str(value)[:40]!r} is no quantity")
    sign, integer, fraction, suffix, exponent = match.groups(default="")
    number = Fraction(int(integer + fraction), 10 ** len(fraction)) * _FACTORS[suffix]
    number *= Fraction(10) ** int(exponent or 0)
    if sign == "-":
        number = -number
    if number.denominator != 1 or not 0 <= number <= _MOST:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number of 0 or more")
    return int(number)
