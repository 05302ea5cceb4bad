"""Options of the source `jobfiles`."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of the files, and how podgpu follows it."""

    path: Annotated[
        Path,
        Doc("The folder with one file for each GPU (0, 1, ...) or MIG instance (0.7), as in DCGM."),
    ] = Path("/run/gpu-jobs")
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("Time between checks of the folder. podgpu also reads it when a file changes."),
    ] = Duration.parse("10s")
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the last jobs stay valid while the folder cannot be read."),
    ] = Duration.parse("5m")
