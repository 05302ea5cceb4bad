"""Options of the source `nvml` for the contract tests."""

from pathlib import Path

from config.value_types import Duration
from sources.nvml.options import Options


def options(_: Path) -> Options:
    return Options(interval=Duration.parse("200ms"))
