"""Options of the source `podresources` for the contract tests."""

from pathlib import Path

from config.value_types import Duration
from sources.podresources.options import Options

SOCKET = "kubelet.sock"
"""The name of the kubelet's socket in the folder of a test."""


def options(folder: Path) -> Options:
    return Options(sockets=(folder / SOCKET,), interval=Duration.parse("1s"))
