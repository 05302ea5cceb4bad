"""Options of the podlist source."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import ByteSize, Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pod list lies and how it is read."""

    path: Annotated[
        Path,
        Doc(
            "The file. Mount its folder, not the file: what is put in its place can't be read else."
        ),
    ] = Path("/var/lib/kubelet/pod-resources/podlist.json")
    integers: Annotated[
        Literal["minor", "index"],
        Doc("What a number in gpu_list is: N of /dev/nvidiaN, or NVML's index."),
    ] = "minor"
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the last good list stands once the file is missing, broken or stale."),
    ] = Duration.parse("5m")
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How often the list is confirmed and the file looked at; changes are seen at once."),
    ] = Duration.parse("10s")
    max_size: Annotated[
        ByteSize,
        AtLeast("1KiB"),
        Doc("A larger file is not read."),
    ] = ByteSize.parse("10MiB")
