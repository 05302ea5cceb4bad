"""Options of the source `checkpoint` for the contract tests."""

from pathlib import Path

from config.value_types import Duration
from sources.checkpoint.options import Options
from tests.sources.checkpoint.checkpoints import checkpoint, entry


def options(folder: Path) -> Options:
    path = folder / "kubelet_internal_checkpoint"
    path.write_bytes(checkpoint(entry()))
    return Options(path=path, interval=Duration.parse("1s"))
