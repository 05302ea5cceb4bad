"""Options of the source `slurm` for the contract tests."""

import os
from pathlib import Path

from config.value_types import Duration
from sources.slurm.options import Options
from tests.sources.slurm import recorded


def options(folder: Path) -> Options:
    place = recorded.scontrol(folder / "slurm")
    if str(place) not in os.environ["PATH"]:
        os.environ["PATH"] = f"{place}{os.pathsep}{os.environ['PATH']}"
    (folder / "slurm" / "job.7").write_text(recorded.job("7"))
    node = recorded.version_1(folder / "cgroup")
    if not (node / "uid_1000").exists():
        recorded.start(node, "7")
    return Options(cgroups=folder / "cgroup", interval=Duration.parse("1s"))
