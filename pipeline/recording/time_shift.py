"""Conversion of the times in recorded events."""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from pipeline.model import NS, Instant, Reading

T = TypeVar("T")

Move = Callable[[Instant], Instant]
Stretch = Callable[[int], int]

_VALIDITY_FIELD: Final = "good_for_ns"
TIMESTAMP_SUFFIX: Final = "_timestamp_seconds"
"""The end of the names of fields whose value is a time, in seconds since the Unix epoch."""

_LATEST: Final = 1e10
"""Times after this, in the year 2286, are no times: a damaged recording may contain any number."""
_ATOMIC_TYPES: Final = frozenset({str, int, float, bool, type(None)})


def shifted(value: T, move: Move, stretch: Stretch) -> T:
    """Return an event with all `Instant`s converted by `move`, and all `good_for_ns` by `stretch`.

    A reading whose value is a time is converted like an `Instant` of that wall time. The function
    also converts the parts of dataclasses, named tuples and tuples. So it needs no change for new
    types of events.

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
    if kind is Reading and value.field.endswith(TIMESTAMP_SUFFIX) and 0 < value.value < _LATEST:
        wall_ns = round(value.value * NS)
        mono_ns = value.at.mono_ns + wall_ns - value.at.wall_ns
        value = value._replace(value=move(Instant(mono_ns, wall_ns)).wall_ns / NS)
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
