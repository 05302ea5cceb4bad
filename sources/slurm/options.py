"""Options of the source `slurm`."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs are found, and how podgpu asks Slurm about them."""

    cgroups: Annotated[
        Path, Doc("Where the host's cgroups are mounted. Each job has a cgroup on its node.")
    ] = Path("/sys/fs/cgroup")
    node_name: Annotated[
        str,
        Doc("Slurm's name of this node; by default that of its cgroups, or else the host name."),
    ] = ""
    gpu_numbers: Annotated[
        Literal["index", "minor"],
        Doc(
            "What Slurm's number of a GPU is, its place in gres.conf: NVML's index, or N of "
            "/dev/nvidiaN."
        ),
    ] = "index"
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc(
            "Time between two confirmations of the jobs, and between questions about a job that "
            "Slurm did not answer. A job that starts or ends is noticed immediately."
        ),
    ] = Duration.parse("10s")
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the last jobs stay valid while cgroups cannot be read."),
    ] = Duration.parse("5m")
    timeout: Annotated[Duration, AtLeast("100ms"), Doc("How long scontrol may take to answer.")] = (
        Duration.parse("10s")
    )
