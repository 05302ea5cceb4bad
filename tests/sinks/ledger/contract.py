"""Options of the sink `ledger` for the contract tests."""

from pathlib import Path

from sinks.ledger.options import Options


def options(folder: Path) -> Options:
    return Options(path=folder / "usage.db")
