"""Options of the sink `textfile` for the contract tests."""

from pathlib import Path

from sinks.textfile.options import Options


def options(folder: Path) -> Options:
    return Options(path=folder / "podgpu.prom")
