"""The options of the kernel source."""

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


def test_the_defaults_are_the_paths_of_the_host() -> None:
    assert options() == Options(path=Path("/dev/kmsg"), proc=Path("/proc"))


def test_configured_paths_are_used() -> None:
    configured = options(", path: /host/kmsg, proc: /host/proc")
    assert configured == Options(path=Path("/host/kmsg"), proc=Path("/host/proc"))


def test_a_second_kernel_source_is_refused() -> None:
    with pytest.raises(ConfigError, match="already uses the kernel's log"):
        options(other=", again: {kind: kernel}")
