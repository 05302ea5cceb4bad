"""Conversion of the times in recorded events."""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from pipeline.model import Instant

T = TypeVar("T")

Move = Callable[[Instant], Instant]
Stretch = Callable[[int], int]

_VALIDITY_FIELD: Final = "good_for_ns"
_ATOMIC_TYPES: Final = frozenset({str, int, float, bool, type(None)})


def shifted(value: T, move: Move, stretch: Stretch) -> T:
    """Return an event with all `Instant`s converted by `move`, and all `good_for_ns` by `stretch`.

    The function also converts the parts of dataclasses, named tuples and tuples. So it needs no
    change for new types of events.

    Args:
        value: an event, or a part of one.
        move: function that converts a moment.
        stretch: function that converts a `good_for_ns`.
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
