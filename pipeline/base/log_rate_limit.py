"""Limits log lines per kind and minute, so that a repeated fault does not fill the disk.

It applies to all loggers, including those of libraries: asyncio logs each connection that can't be
accepted, thousands of times a second if there are no file descriptors left.

A *place* is a line of code that logs, with one logger; components have their own loggers. A *kind*
is the messages of a place that are equal except for numbers and addresses, with the same type of
exception. So no fault hides another one, and a place with varying texts is limited as well.
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
"""Duration of a span, from the first line of a place on."""

EACH: Final = 10
"""Maximum of lines of one kind in a span."""

KINDS: Final = 50
"""Maximum of kinds of a place in a span. Also the maximum of lines of a place in a span, without
the first line of each kind."""

_OTHERS: Final = ""

_VARYING: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+")
_KIND_CHARACTERS: Final = 500
"""Characters of a text that decide its kind."""

_Place: TypeAlias = tuple[str, str, int]


@dataclass(slots=True)
class _Kind:
    """Messages of one kind.

    Attributes:
        shown: the first record of this kind in the span; for `_OTHERS`, the last record. It has
            only the text, so that the record's arguments are not kept alive.
        lines: number of written lines.
        omitted: number of omitted lines.
    """

    shown: logging.LogRecord
    lines: int = 0
    omitted: int = 0


@dataclass(slots=True)
class _Span:
    """Lines of a place within one span.

    Attributes:
        since: Unix time of the first line.
        lines: written lines beyond the first of each kind.
        kinds: the kinds by key. All further kinds are one kind, `_OTHERS`; its lines are omitted.
    """

    since: float
    lines: int = 0
    kinds: dict[str, _Kind] = field(default_factory=dict)


class LogRateLimit:
    """Decides which log records are written. Pure: it uses the times of the records."""

    def __init__(self) -> None:
        self._spans: dict[_Place, _Span] = {}

    def admit(self, record: logging.LogRecord) -> logging.LogRecord | None:
        """Return the record to write for a record; None if it is omitted.

        Only the first record of a kind in a span keeps its traceback.
        """
        place = (record.name, record.pathname, record.lineno)
        span = self._spans.get(place)
        if span is None:
            span = self._spans[place] = _Span(record.created)
        key = _kind(record)
        kind = span.kinds.get(key)
        if kind is None:
            if len(span.kinds) >= KINDS:
                others = span.kinds.setdefault(_OTHERS, _Kind(record))
                others.shown, others.omitted = _text_of(record), others.omitted + 1
                return None
            span.kinds[key] = _Kind(_text_of(record), lines=1)
            return record
        if kind.lines >= EACH or span.lines >= KINDS:
            kind.omitted += 1
            return None
        kind.lines += 1
        span.lines += 1
        return _text_of(record, " (with a traceback as above)") if record.exc_info else record

    def end_spans(self, now: float | None = None) -> list[logging.LogRecord]:
        """End spans; return a record with the number of omitted lines for each limited kind.

        Args:
            now: Unix time: spans that began `SECONDS` ago or earlier end. None: all spans end.
        """
        found: list[logging.LogRecord] = []
        # A clock that was set back ends spans too.
        ended = [
            place
            for place, span in self._spans.items()
            if now is None or abs(now - span.since) >= SECONDS
        ]
        for place in ended:
            span = self._spans.pop(place)
            found += [_more(key, kind) for key, kind in span.kinds.items() if kind.omitted]
        return found


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes log lines to a stream, limited per kind and minute.

    The number of omitted lines is logged when the minute is over. Records below level `info` are
    not limited, because a user asked for them.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._limit = LogRateLimit()
        self._timer: threading.Timer | None = None
        self._ended = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record unless it is over the limit. Called with the handler's lock."""
        if record.levelno < logging.INFO:
            super().emit(record)
            return
        self._log_omitted(record.created)
        admitted = self._limit.admit(record)
        if admitted is not None:
            super().emit(admitted)
        elif self._timer is None and not self._ended:
            self._schedule_summary()

    def close(self) -> None:
        """Log the numbers of omitted lines, and close. Safe to call again."""
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
        timer = threading.Timer(SECONDS, self._on_timer)
        timer.name, timer.daemon = "podgpu-log", True
        # If no thread can be started, the next log line triggers the summary.
        with contextlib.suppress(RuntimeError):
            timer.start()
            self._timer = timer

    def _on_timer(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self._log_omitted(None)
        finally:
            self.release()

    def _log_omitted(self, now: float | None) -> None:
        for summary in self._limit.end_spans(now):
            super().emit(summary)


def log_uncaught(log: logging.Logger) -> None:
    """Log uncaught exceptions, instead of writing them to stderr without a limit.

    These are exceptions that end a thread, or that are raised in a callback from C. A hook that
    another library has set stays.
    """

    def on_unraisable(info: "sys.UnraisableHookArgs") -> None:
        error = info.exc_value
        exc_info = None if error is None else (info.exc_type, error, info.exc_traceback)
        log.error("%s %r", info.err_msg or "exception ignored in", info.object, exc_info=exc_info)

    def on_thread_exception(info: threading.ExceptHookArgs) -> None:
        error = info.exc_value
        if error is None or isinstance(error, SystemExit):
            return
        name = "" if info.thread is None else info.thread.name
        exc_info = (info.exc_type, error, info.exc_traceback)
        log.error("thread %s ended with an uncaught exception", name, exc_info=exc_info)

    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = on_unraisable
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = on_thread_exception


def _kind(record: logging.LogRecord) -> str:
    error = record.exc_info[0] if record.exc_info else None
    error_name = "" if error is None else error.__qualname__
    return f"{error_name} {_VARYING.sub('0', _message(record)[:_KIND_CHARACTERS])}"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - wrong arguments: the handler that writes it reports that
        return str(record.msg)


def _text_of(record: logging.LogRecord, ending: str = "") -> logging.LogRecord:
    """Return a copy of a record with its message on one line and without traceback."""
    copied = copy.copy(record)  # other handlers get the whole record
    copied.msg, copied.args = line(_message(record)) + ending, None
    copied.exc_info = copied.exc_text = copied.stack_info = None
    return copied


def _more(key: str, kind: _Kind) -> logging.LogRecord:
    what = ", and others from the same place in the code," if key == _OTHERS else ""
    copied = copy.copy(kind.shown)
    copied.msg = "%d more lines like the following%s were left out in the last minute: %s"
    copied.args = (kind.omitted, what, kind.shown.msg)
    return copied
