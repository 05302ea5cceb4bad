"""Options of the source `kernel` for the contract tests."""

from pathlib import Path

from sources.kernel.options import Options
from tests.sources.kernel.logs import busy_log


def options(_: Path) -> Options:
    return Options(path=busy_log())
