"""Conversion of the times in a recorded event."""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from pipeline.model import Instant

T = TypeVar("T")

Move = Callable[[Instant], Instant]
Stretch = Callable[[int], int]

_VALIDITY_FIELD: Final = "good_for_ns"
_ATOMIC_TYPES: Final = frozenset({str, int, float, bool, type(None)})


def shifted(value: T, move: Move, stretch: Stretch) -> T:
    """Return an event with every `Instant` moved and every `good_for_ns` stretched.

    It recurses into dataclasses, named tuples and tuples by type, so new types of events need no
    changes here.

    Args:
        value: an event, or a part of one.
        move: converts a moment.
        stretch: converts a `good_for_ns`.
    """
    return cast("T", _shift(value, move, stretch))


def _shift(value: Any, move: Move, stretch: Stretch) -> Any:
    kind = type(value)
    if kind in _ATOMIC_TYPES:
        return value
    if kind is Instant:
        return move(value)
    names = getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", ())
    if names:
        items = [(name, getattr(value, name)) for name in names]
        return kind(
            *[
                stretch(item) if name == _VALIDITY_FIELD else _shift(item, move, stretch)
                for name, item in items
            ]
        )
    if isinstance(value, tuple):
        return tuple([_shift(item, move, stretch) for item in value])
    return value
