"""Options of the sink `otlp` for the contract tests."""

from pathlib import Path

from pipeline.delivery.options import QueueOptions
from sinks.otlp.options import Options


def options(folder: Path) -> Options:
    # No server listens on port 1; the points wait in the folder.
    return Options(endpoint="http://127.0.0.1:1", queue=QueueOptions(path=folder / "queue"))
