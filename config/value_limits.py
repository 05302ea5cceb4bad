"""The bounds of a value, collected from all markers."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self, get_origin

import msgspec

from config.option_markers import AtLeast, AtMost
from config.value_types import ByteSize, Duration

_ORDERED: Final = (int, float, Duration, ByteSize)
_SIZED: Final = (str, tuple, dict)
_NOUNS: Final[dict[type, str]] = {str: "characters", tuple: "items", dict: "entries"}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a value of the right type; None means no limit.

    ``ge`` and ``le`` have the value's type; lengths count characters, items or
    entries; ``pattern`` may match anywhere in a text.
    """

    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    @classmethod
    def of(cls, hint: Any, where: str, markers: Iterable[object]) -> Self:
        """Collect the limits of the markers of a type; TypeError if one does not apply."""
        base = get_origin(hint) or hint
        found: dict[str, Any] = {}
        for marker in markers:
            if isinstance(marker, AtLeast):
                found["ge"] = _bound(base, marker.bound, where)
            elif isinstance(marker, AtMost):
                found["le"] = _bound(base, marker.bound, where)
            elif isinstance(marker, msgspec.Meta):
                found.update(_meta(base, marker, where))
        if {"min_length", "max_length"} & found.keys() and base not in _SIZED:
            raise TypeError(f"{where}: {hint} has no length to bound")
        if "pattern" in found and base is not str:
            raise TypeError(f"{where}: {hint} is not a text to match")
        return cls(**found)

    def broken(self, value: Any) -> Iterator[tuple[str, str]]:
        """Yield (reason, hint) for each limit that the value breaks.

        The reason follows the value: ``is too small``; the hint has the limit.
        """
        if self.ge is not None and value < self.ge:
            yield "is too small", f"the minimum is {self.ge}"
        if self.le is not None and value > self.le:
            yield "is too large", f"the maximum is {self.le}"
        noun = next((noun for base, noun in _NOUNS.items() if isinstance(value, base)), "")
        if self.min_length is not None and len(value) < self.min_length:
            yield "is too short", f"it needs {self.min_length} or more {noun}"
        if self.max_length is not None and len(value) > self.max_length:
            yield "is too long", f"it takes {self.max_length} or fewer {noun}"
        if self.pattern is not None and not re.search(self.pattern, value):
            yield "does not fit", f"it must match {self.pattern}"


def _bound(base: Any, bound: str | float, where: str) -> float:
    if base not in _ORDERED:
        raise TypeError(f"{where}: {base} has no order to bound")
    if base in (Duration, ByteSize):
        return base.parse(bound) if isinstance(bound, str) else base(bound)  # type: ignore[no-any-return]
    if isinstance(bound, str):
        raise TypeError(f"{where}: the bound of a plain number is a number")
    return bound


def _meta(base: Any, meta: msgspec.Meta, where: str) -> Iterator[tuple[str, Any]]:
    if (meta.gt, meta.lt, meta.multiple_of) != (None, None, None):
        raise TypeError(f"{where}: write inclusive bounds: ge and le")
    for name in ("ge", "le"):
        bound = getattr(meta, name)
        if bound is not None:
            yield name, _bound(base, bound, where)
    for name in ("min_length", "max_length", "pattern"):
        value = getattr(meta, name)
        if value is not None:
            yield name, value
