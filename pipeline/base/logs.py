"""Log formats and setup. Logs go to stderr, because sinks may use stdout."""

import logging
import sys
from typing import Any, Final

import orjson

from pipeline.base.log_rate_limit import BoundedHandler, log_uncaught
from pipeline.base.safe_text import without_control_characters

ROOT = "podgpu"

LONGEST: Final = 8000
"""Maximum of characters of a message and of a traceback; longer texts lose their middle."""


class TextFormatter(logging.Formatter):
    """Formats a record as text, without characters that affect a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; a traceback follows on further lines."""
        return without_control_characters(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format the first line."""
        record.message = _shorten(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Format a traceback, with limited length."""
        return _shorten(super().formatException(ei))


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, without characters that affect a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; a traceback becomes one string."""
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shorten(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = _shorten(self.formatException(record.exc_info))
        return orjson.dumps(
            {name: without_control_characters(text) for name, text in line.items()}
        ).decode()


def set_up(level: str, format_: str) -> logging.Logger:
    """Send log lines to stderr: those of podgpu, and warnings and errors of libraries.

    May be called again to change level or format.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        format_: `text` or `json`.
    """
    podgpu, root_logger = logging.getLogger(ROOT), logging.getLogger()
    existing = (handler for handler in podgpu.handlers if isinstance(handler, BoundedHandler))
    handler = next(existing, None) or BoundedHandler(sys.stderr)
    handler.stream = sys.stderr
    handler.setFormatter(
        JsonFormatter()
        if format_ == "json"
        else TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    podgpu.handlers[:] = [handler]
    podgpu.setLevel(level.upper())
    podgpu.propagate = False
    if handler not in root_logger.handlers:
        root_logger.addHandler(handler)
    root_logger.setLevel(logging.ERROR if level == "error" else logging.WARNING)
    log_uncaught(podgpu)
    return podgpu


def _shorten(text: str) -> str:
    """Shorten a text to about `LONGEST` characters; keep its start and its end."""
    if len(text) <= LONGEST:
        return text
    end = LONGEST * 3 // 4
    return (
        f"{text[: LONGEST - end]}\n... {len(text) - LONGEST} characters left out ...\n{text[-end:]}"
    )
