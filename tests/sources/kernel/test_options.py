"""What may be configured."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sources.kernel.options import Options

TEXT = "sources: {{log: {{kind: kernel{more}}}{other}}}\nsinks: {{lines: {{kind: jsonl}}}}\n"


def options(more: str = "", other: str = "") -> object:
    text = TEXT.format(more=more, other=other)
    return parse(text, RegisteredKinds(), env={}, origin="test").sources["log"].options


def test_defaults() -> None:
    assert options() == Options(path=Path("/dev/kmsg"), proc=Path("/proc"))


def test_what_is_given() -> None:
    given = options(", path: /host/kmsg, proc: /host/proc")
    assert given == Options(path=Path("/host/kmsg"), proc=Path("/host/proc"))


def test_there_is_one_of_them() -> None:
    with pytest.raises(ConfigError, match="already uses the kernel's log"):
        options(other=", again: {kind: kernel}")
