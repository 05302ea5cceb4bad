"""Detects, counts and logs other programs that write the same annotation."""

from collections import deque
from typing import Any, Final

import orjson

from pipeline.base.safe_text import line
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.kube.json_access import parsed_object
from pipeline.topology.node_annotation import LONGEST

_ERRORS: Final = "podgpu_sink_errors_total"
_MAX_LOGGED: Final = 16
"""Maximum number of different values of other programs that are logged; all overwrites count."""

_MAX_UNANSWERED: Final = 4
"""Maximum number of values that are remembered because their patch got no response."""


class ConcurrentWriters:
    """Detects values of other programs, by comparison with the values that this sink wrote.

    Args:
        place: the annotation's name for messages.
        ctx: context of the sink.
    """

    def __init__(self, place: str, ctx: SinkContext) -> None:
        self._place = place
        self._ctx = ctx
        self._written: str | None = None
        self._unanswered: deque[str] = deque(maxlen=_MAX_UNANSWERED)
        self._logged: set[int] = set()
        self._missing = False
        self._is_foreign = False
        ctx.meter.add(_ERRORS, 0, operation="overwritten", reason="foreign")

    def wrote(self, value: str) -> None:
        """Record that the server accepted a value; count the value of another program before it."""
        self._written, self._missing = value, False
        if self._is_foreign:
            self._is_foreign = False
            self._ctx.meter.add(_ERRORS, operation="overwritten", reason="foreign")

    def may_have_written(self, value: str) -> None:
        """Record a value of a patch without a response: the server may still accept it later."""
        self._unanswered.append(value)

    def forget(self) -> None:
        """Forget the values that this sink wrote, because the annotation was removed."""
        self._written = None
        self._unanswered.clear()

    def is_own_value(self, value: str | None) -> bool:
        """Whether this sink wrote this value last; False if it has written none."""
        return self._written is not None and value == self._written

    def check_value(self, value: str | None) -> None:
        """Check the present value before it is overwritten. Log another program's value.

        A deleted annotation is logged too. Before this sink has written a value, any value in the
        format of such an annotation, of any version, counts as written by an earlier podgpu.
        """
        self._is_foreign = False
        if value is None:
            if self._written is not None and not self._missing:
                self._missing = True
                self._ctx.log.info("%s was deleted; it is written again", self._place)
            return
        if value == self._written or value in self._unanswered:
            return
        if self._written is None and "version" in _object(value):
            return
        self._is_foreign = True
        key = hash(_substance(value))
        is_new = key not in self._logged and len(self._logged) < _MAX_LOGGED
        if is_new:
            self._logged.add(key)
        warn(
            self._ctx,
            "%s has the value %r of another program; podgpu overwrites it; make sure that podgpu "
            "is its only writer, or set another `annotation`%s",
            self._place,
            line(value, 80),
            "" if len(self._logged) < _MAX_LOGGED else "; further values are only counted",
            is_new=is_new,
        )


def _object(value: str) -> dict[str, Any]:
    """Return the value as a JSON object; an empty object if it is no object or is too long."""
    return parsed_object(value) if len(value) <= LONGEST else {}


def _substance(value: str) -> str:
    """Return a value without its time, which another podgpu changes at each refresh."""
    content = _object(value)
    if not content:
        return value
    rest = {key: item for key, item in content.items() if key not in {"at", "refresh"}}
    return orjson.dumps(rest, option=orjson.OPT_SORT_KEYS).decode()
