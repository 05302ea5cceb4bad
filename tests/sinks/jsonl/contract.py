"""Options of the sink `jsonl` for the contract tests."""

from pathlib import Path

from sinks.jsonl.options import Options


def options(folder: Path) -> Options:
    return Options(path=str(folder / "lines.jsonl"))
