"""Options of the source `docker` for the contract tests."""

from pathlib import Path

from sources.docker.options import Options

SOCKET = "docker.sock"
"""The name of the daemon's socket in the folder of a test."""


def options(folder: Path) -> Options:
    return Options(socket=folder / SOCKET)
