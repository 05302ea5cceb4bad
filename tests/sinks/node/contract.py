"""Options of the sink `node` for the contract tests."""

from pathlib import Path

from sinks.node.options import Options


def options(_: Path) -> Options:
    return Options()
