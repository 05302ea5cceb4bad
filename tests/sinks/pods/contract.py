"""Options of the sink `pods` for the contract tests."""

from pathlib import Path

from sinks.pods.options import Options


def options(_: Path) -> Options:
    return Options()
