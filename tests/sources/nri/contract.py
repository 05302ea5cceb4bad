"""Options of the source `nri` for the contract tests."""

from pathlib import Path

from sources.nri.options import Options

SOCKET = "nri.sock"
"""The name of the container runtime's socket in the folder of a test."""


def options(folder: Path) -> Options:
    return Options(socket=folder / SOCKET)
