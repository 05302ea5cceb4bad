"""Log lines: a constant text, with what varies behind it. To stderr; stdout belongs to sinks."""

import logging
import sys
from types import TracebackType
from typing import Final, TypeAlias

import orjson

from pipeline.base.log_rate_limit import BoundedHandler, log_uncaught
from pipeline.base.safe_text import without_control_characters

ROOT = "podgpu"

LONGEST: Final = 8000
"""Characters of a message, and of a traceback; of what is longer the middle is left out."""

_Raised: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class TextFormatter(logging.Formatter):
    """A line of text, without characters that a terminal acts on."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record; an exception follows in further lines."""
        return without_control_characters(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Render the line without what follows it."""
        record.message = _cut(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - logging's name
        """Render a traceback, of a bounded length."""
        return _cut(super().formatException(ei))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, without characters that a terminal acts on."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record; an exception goes into one string."""
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = _cut(self.formatException(record.exc_info))
        return orjson.dumps(
            {name: without_control_characters(text) for name, text in line.items()}
        ).decode()


def set_up(level: str, format_: str) -> logging.Logger:
    """Direct log lines to stderr, podgpu's and from warnings on those of libraries.

    May be called again to change level or format.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        format_: `text` or `json`.
    """
    podgpu, everybody = logging.getLogger(ROOT), logging.getLogger()
    handler = next((each for each in podgpu.handlers if isinstance(each, BoundedHandler)), None)
    if handler is None:
        handler = BoundedHandler(sys.stderr)
    handler.stream = sys.stderr
    handler.setFormatter(
        JsonFormatter()
        if format_ == "json"
        else TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    podgpu.handlers[:] = [handler]
    podgpu.setLevel(level.upper())
    podgpu.propagate = False
    if handler not in everybody.handlers:
        everybody.addHandler(handler)
    everybody.setLevel(logging.ERROR if level == "error" else logging.WARNING)
    log_uncaught(podgpu)
    return podgpu


def _cut(text: str) -> str:
    """Return a text that isn't longer than `LONGEST`, with its beginning and its end."""
    if len(text) <= LONGEST:
        return text
    end = LONGEST * 3 // 4
    return (
        f"{text[: LONGEST - end]}\n... {len(text) - LONGEST} characters left out ...\n{text[-end:]}"
    )
