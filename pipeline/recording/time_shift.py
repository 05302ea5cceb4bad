"""Moves a recorded event to another time."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar, cast

from pipeline.model import Instant

T = TypeVar("T")

Move = Callable[[Instant], Instant]
Stretch = Callable[[int], int]

_GOOD_FOR: Final = "good_for_ns"
_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def shifted(value: T, move: Move, stretch: Stretch) -> T:
    """Return the event with every `Instant` in it moved and every `good_for_ns` stretched.

    Goes by type through dataclasses, named tuples and tuples, so that a new kind of event needs
    nothing here.

    Args:
        value: an event, or anything in one.
        move: says where a moment goes.
        stretch: says how long a `good_for_ns` becomes.
    """
    return cast("T", _shift(value, move, stretch))


def _shift(value: Any, move: Move, stretch: Stretch) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is Instant:
        return move(value)
    if isinstance(value, tuple):
        names = getattr(kind, "_fields", None)
        if names is None:
            return tuple([_shift(item, move, stretch) for item in value])
        return kind(
            *[
                stretch(item) if name == _GOOD_FOR else _shift(item, move, stretch)
                for name, item in zip(names, value, strict=True)
            ]
        )
    if is_dataclass(value):
        return kind(
            **{
                name: stretch(item) if name == _GOOD_FOR else _shift(item, move, stretch)
                for name, item in [(f.name, getattr(value, f.name)) for f in fields(value)]
            }
        )
    return value
