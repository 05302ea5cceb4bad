"""Sums of amounts of which some may be unknown."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, Self, TypeVar

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


@dataclass(frozen=True, slots=True)
class Tally(Generic[Number]):
    """A sum to which more can be added: unlike a `Sum`, it can be of no amounts at all.

    Attributes:
        known: the sum of the known amounts; None if no amount is known.
        missing: whether an amount is unknown.
    """

    known: Number | None = None
    missing: bool = False

    @classmethod
    def of(cls, amount: Number | None) -> Self:
        """Return the tally of one amount, which may be unknown."""
        return cls(amount, amount is None)

    def __add__(self, other: "Tally[Number]") -> "Tally[Number]":
        """Return the tally of the amounts of both."""
        known = other.known if self.known is None else self.known
        if self.known is not None and other.known is not None:
            known = self.known + other.known
        return Tally(known, self.missing or other.missing)

    @property
    def is_empty(self) -> bool:
        """Whether it is of no amounts."""
        return self.known is None and not self.missing

    def sum(self, zero: Number) -> Sum[Number]:
        """Return the sum; `zero` if there are no amounts."""
        if self.is_empty:
            return Sum(zero)
        return Sum(self.known, self.known is not None and self.missing)
