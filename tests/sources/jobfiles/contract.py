"""Options of the source `jobfiles` for the contract tests."""

from pathlib import Path

from config.value_types import Duration
from sources.jobfiles.options import Options


def options(folder: Path) -> Options:
    path = folder / "gpu-jobs"
    path.mkdir(exist_ok=True)
    (path / "0").write_text("4711\n")
    return Options(path=path, interval=Duration.parse("1s"))
