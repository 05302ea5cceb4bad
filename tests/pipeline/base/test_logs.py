"""Tests of the formatters of log lines."""

import json
import logging

import pytest

from pipeline.base.logs import JsonFormatter, TextFormatter


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\x07b", "a\u202eb", "a\ud800b", "a\x00b"])
def test_r11_control_characters_in_log_lines_are_replaced(text: str) -> None:
    """R11: log lines contain names that users chose. They must not control a terminal."""
    record = logging.LogRecord("podgpu.x", logging.WARNING, "", 0, "%s: gone", (text,), None)
    shown = "a\ufffd[2Jb" if "[" in text else "a\ufffdb"
    assert TextFormatter("%(levelname)s %(message)s").format(record) == f"WARNING {shown}: gone"
    assert json.loads(JsonFormatter().format(record))["message"] == f"{shown}: gone"
