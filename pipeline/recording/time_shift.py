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


def shifted(value: T, move: Move, stretch: Stretch, move_start: Move | None = None) -> T:
    """Return an event with all `Instant`s converted by `move`, and all `good_for_ns` by `stretch`.

    Times since when something has existed, such as the start of a pod, can be converted
    differently. All times in an object with a `good_for_ns` are times of its measurement. A reading
    whose value is a time is converted like an `Instant` of that wall time. The function also
    converts the parts of dataclasses, named tuples and tuples. So it needs no change for new types
    of events.

    Args:
        value: an event, or a part of one.
        move: function that converts a moment.
        stretch: function that converts a `good_for_ns`.
        move_start: converts a moment since when something has existed; `move` if None.
    """
    return cast("T", _shift(value, move, stretch, move_start or move))


def _shift(value: Any, move: Move, stretch: Stretch, move_start: Move) -> Any:
    kind = type(value)
    if kind in _ATOMIC_TYPES:
        return value
    if kind is Instant:
        return move_start(value)
    if kind is Reading and value.field.endswith(TIMESTAMP_SUFFIX) and 0 < value.value < _LATEST:
        wall_ns = round(value.value * NS)
        mono_ns = value.at.mono_ns + wall_ns - value.at.wall_ns
        value = value._replace(value=move(Instant(mono_ns, wall_ns)).wall_ns / NS)
    names = getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", ())
    if names:
        measured = _VALIDITY_FIELD in names
        parts: list[Any] = []
        for name in names:
            item = getattr(value, name)
            if name == _VALIDITY_FIELD:
                parts.append(stretch(item))
            elif measured and type(item) is Instant:
                parts.append(move(item))
            else:
                parts.append(_shift(item, move, stretch, move_start))
        return kind(*parts)
    if isinstance(value, tuple):
        return tuple([_shift(item, move, stretch, move_start) for item in value])
    return value
