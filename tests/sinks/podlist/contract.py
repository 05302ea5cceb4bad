"""Options of the sink `podlist` for the contract tests."""

from pathlib import Path

from sinks.podlist.options import Options


def options(folder: Path) -> Options:
    return Options(path=folder / "podlist.json")
