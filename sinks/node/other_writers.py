"""Other writers of the same annotation: found out, counted, told."""

from collections import deque
from typing import Any, Final

import orjson

from pipeline.base.safe_text import line
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.topology.node_annotation import LONGEST

_ERRORS: Final = "podgpu_sink_errors_total"
_MAX_LOGGED: Final = 16
"""So many values of others are told, each once; all are counted."""

_LOST: Final = 4
"""Of so many patches without an answer it is remembered what they would have written."""


class ConcurrentWriters:
    """Knows what this sink wrote, and so what it didn't.

    Args:
        place: which annotation, for messages.
        ctx: the sink's.
    """

    def __init__(self, place: str, ctx: SinkContext) -> None:
        self._place = place
        self._ctx = ctx
        self._written: str | None = None
        self._lost: deque[str] = deque(maxlen=_LOST)
        self._told: set[int] = set()
        self._missing = False
        self._foreign = False
        ctx.meter.add(_ERRORS, 0, operation="overwritten", reason="foreign")

    def wrote(self, value: str) -> None:
        """The server has taken a value."""
        self._written, self._missing = value, False
        if self._foreign:
            self._foreign = False
            self._ctx.meter.add(_ERRORS, operation="overwritten", reason="foreign")

    def may_have_written(self, value: str) -> None:
        """The server may have taken a value, now or later."""
        self._lost.append(value)

    def forget(self) -> None:
        """Nothing of what was written stands any more."""
        self._written = None
        self._lost.clear()

    def is_own_value(self, value: str | None) -> bool:
        """Whether a value is the one that was written last, as far as that is known."""
        return self._written is not None and value == self._written

    def check_value(self, value: str | None) -> None:
        """Judge what stands there, before it is written over.

        Before this sink has written, whatever looks like such an annotation, of any version, counts
        as an earlier podgpu's.
        """
        self._foreign = False
        if value is None:
            if self._written is not None and not self._missing:
                self._missing = True
                self._ctx.log.info("%s was deleted; it is written again", self._place)
            return
        if value == self._written or value in self._lost:
            return
        if self._written is None and _ours(value):
            return
        self._foreign = True
        key = hash(_substance(value))
        news = key not in self._told and len(self._told) < _MAX_LOGGED
        if news:
            self._told.add(key)
        warn(
            self._ctx,
            "%s has a value of somebody else's, %r, and is written over; see that it has one "
            "writer, or give podgpu another annotation%s",
            self._place,
            line(value, 80),
            "" if len(self._told) < _MAX_LOGGED else "; further ones are counted, and not told",
            is_new=news,
        )


def _ours(value: str) -> bool:
    return "version" in _object(value)


def _object(value: str) -> dict[str, Any]:
    """Return the JSON object that a value is; an empty one if it is none, or is too long."""
    if len(value) > LONGEST:
        return {}
    try:
        made = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return made if isinstance(made, dict) else {}


def _substance(value: str) -> str:
    """Return what of a value isn't its time: another podgpu's differs in that each time."""
    made = _object(value)
    if not made:
        return value
    rest = {key: item for key, item in made.items() if key not in {"at", "refresh"}}
    return orjson.dumps(rest, option=orjson.OPT_SORT_KEYS).decode()
