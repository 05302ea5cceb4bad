"""Options of the sink `events` for the contract tests."""

from pathlib import Path

from sinks.events.options import Options


def options(_: Path) -> Options:
    return Options()
