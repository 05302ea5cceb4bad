"""How many log lines of one kind there are in a minute: what goes on and on fills no disk.

It holds for all loggers, those of libraries too: asyncio tells of each connection that can't be
taken, thousands of times a second where file descriptors have run out.

A *place* is a line of code that logs, for one logger: components have loggers of their own. A
*kind* is what reads alike there but for numbers and addresses, with the same type of exception. So
no fault hides another one, and whatever varies in a text makes no more lines than a place has.
"""

import contextlib
import copy
import logging
import re
import sys
import threading
from dataclasses import dataclass, field
from typing import Final, TextIO, TypeAlias

from pipeline.base.safe_text import line

SECONDS: Final = 60.0
"""The span that is looked at, from the first line of a place on."""

EACH: Final = 10
"""Lines of one kind in a span."""

KINDS: Final = 50
"""Kinds of a place of which there is a line at least, and lines of a place beyond those."""

_VARIES: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+")
_LONGEST: Final = 500
"""Characters of a text that tell its kind."""

_Place: TypeAlias = tuple[str, str, int]


@dataclass(slots=True)
class _Kind:
    """What reads alike.

    Attributes:
        first: of the span, as a text alone: what it was logged with is not kept alive.
        lines: how many there were.
        left_out: how many more there would have been.
    """

    first: logging.LogRecord
    lines: int = 0
    left_out: int = 0


@dataclass(slots=True)
class _Span:
    """What a place has logged since a moment.

    Attributes:
        since: Unix time of the first.
        lines: beyond the first of each kind.
        others: of kinds that found no room.
        last: of those.
    """

    since: float
    lines: int = 0
    kinds: dict[str, _Kind] = field(default_factory=dict)
    others: int = 0
    last: logging.LogRecord | None = None


class LogRateLimit:
    """Says which records become lines. Pure: the time is that of the records."""

    def __init__(self) -> None:
        self._spans: dict[_Place, _Span] = {}

    def admit(self, record: logging.LogRecord) -> logging.LogRecord | None:
        """Return what is to be written for a record; None if it is left out.

        Of one kind only the first of a span has a traceback.
        """
        place = (record.name, record.pathname, record.lineno)
        span = self._spans.get(place)
        if span is None:
            span = self._spans[place] = _Span(record.created)
        key = _kind(record)
        kind = span.kinds.get(key)
        if kind is None:
            if len(span.kinds) >= KINDS:
                span.others, span.last = span.others + 1, _text_of(record)
                return None
            span.kinds[key] = _Kind(_text_of(record), lines=1)
            return record
        if kind.lines >= EACH or span.lines >= KINDS:
            kind.left_out += 1
            return None
        kind.lines += 1
        span.lines += 1
        return _without_traceback(record)

    def end_spans(self, now: float | None = None) -> list[logging.LogRecord]:
        """End spans; return records that say how many were left out in them.

        Args:
            now: Unix time; spans that are over by then are ended. None ends all.
        """
        found: list[logging.LogRecord] = []
        # A clock that was set back ends them too.
        ended = [
            place
            for place, span in self._spans.items()
            if now is None or abs(now - span.since) >= SECONDS
        ]
        for place in ended:
            span = self._spans.pop(place)
            found += [
                _more(kind.first, kind.left_out) for kind in span.kinds.values() if kind.left_out
            ]
            if span.last is not None:
                found.append(_more(span.last, span.others, " and other lines of that place"))
        return found


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, of one kind no more than a few in a minute.

    How many were left out stands in a line of its own once the minute is over. What serves to find
    errors alone, the level debug, is written whole: somebody wants to see it.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._bounds = LogRateLimit()
        self._timer: threading.Timer | None = None
        self._ended = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record if it isn't one too many. Called with the handler's lock."""
        if record.levelno < logging.INFO:
            super().emit(record)
            return
        self._log_omitted(record.created)
        admitted = self._bounds.admit(record)
        if admitted is not None:
            super().emit(admitted)
        elif self._timer is None and not self._ended:
            self._schedule_summary()

    def close(self) -> None:
        """Say what was left out so far, and no more after that. Safe to call again."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._ended = True
            self._log_omitted(None)
            super().close()
        finally:
            self.release()

    def _schedule_summary(self) -> None:
        timer = threading.Timer(SECONDS, self._time_is_over)
        timer.name, timer.daemon = "podgpu-log", True
        # Where no thread can be had the next line of anybody tells it.
        with contextlib.suppress(RuntimeError):
            timer.start()
            self._timer = timer

    def _time_is_over(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self._log_omitted(None)
        finally:
            self.release()

    def _log_omitted(self, now: float | None) -> None:
        for told in self._bounds.end_spans(now):
            super().emit(told)


def log_uncaught(log: logging.Logger) -> None:
    """Let exceptions that nobody catches be logged, instead of written past all bounds.

    These are such as end a thread, or come out of a callback of C. A hook of somebody else stays.
    """

    def unraisable(told: "sys.UnraisableHookArgs") -> None:
        error = told.exc_value
        found = None if error is None else (told.exc_type, error, told.exc_traceback)
        log.error("%s %r", told.err_msg or "exception ignored in", told.object, exc_info=found)

    def ended(told: threading.ExceptHookArgs) -> None:
        error = told.exc_value
        if error is None or isinstance(error, SystemExit):
            return
        name = "" if told.thread is None else told.thread.name
        found = (told.exc_type, error, told.exc_traceback)
        log.error("the thread %s has ended with an exception", name, exc_info=found)

    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = unraisable
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = ended


def _kind(record: logging.LogRecord) -> str:
    error = record.exc_info[0] if record.exc_info else None
    told = "" if error is None else error.__qualname__
    return f"{told} {_VARIES.sub('0', _message(record)[:_LONGEST])}"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - its values don't fit: who writes it tells of that
        return str(record.msg)


def _text_of(record: logging.LogRecord, ending: str = "") -> logging.LogRecord:
    """Return a record that says the same on one line, without a traceback."""
    made = copy.copy(record)  # others who handle it have it whole
    made.msg, made.args = line(_message(record)) + ending, None
    made.exc_info = made.exc_text = made.stack_info = None
    return made


def _without_traceback(record: logging.LogRecord) -> logging.LogRecord:
    return _text_of(record, " (with a traceback as above)") if record.exc_info else record


def _more(record: logging.LogRecord, count: int, what: str = "") -> logging.LogRecord:
    made = copy.copy(record)
    made.msg = "%d more lines like the following%s were left out in the last minute: %s"
    made.args = (count, what, record.msg)
    return made
