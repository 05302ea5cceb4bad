"""Options of the source `podlist` for the contract tests."""

from pathlib import Path

from config.value_types import Duration
from sources.podlist.options import Options


def options(folder: Path) -> Options:
    path = folder / "podlist.json"
    path.write_text('[{"name": "a", "namespace": "ml", "container": "c", "gpu_list": [0]}]')
    return Options(path=path, interval=Duration.parse("1s"))
