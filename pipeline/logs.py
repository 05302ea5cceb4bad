"""Log lines: a constant text, with what varies behind it. To stderr; stdout belongs to sinks."""

import logging
import sys

import orjson

from pipeline.texts import harmless

ROOT = "podgpu"


class TextFormatter(logging.Formatter):
    """A line of text, without characters that a terminal acts on."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record; an exception follows in further lines."""
        return harmless(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, without characters that a terminal acts on."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record; an exception goes into one string."""
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps({name: harmless(text) for name, text in line.items()}).decode()


def set_up(level: str, format_: str) -> logging.Logger:
    """Direct podgpu's log lines to stderr; may be called again to change level or format.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        format_: `text` or `json`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter()
        if format_ == "json"
        else TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    return root
