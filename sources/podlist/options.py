"""Options of the podlist source."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import ByteSize, Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options: where the pod list is, and how it is read."""

    path: Annotated[
        Path,
        Doc(
            "Path of the file. Mount its folder, not the file: a mounted file does not change when "
            "another one replaces it."
        ),
    ] = Path("/var/lib/kubelet/pod-resources/podlist.json")
    integers: Annotated[
        Literal["minor", "index"],
        Doc("Meaning of numbers in gpu_list: N of /dev/nvidiaN (minor), or NVML's index."),
    ] = "minor"
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc(
            "How long the last valid list stays in use while the file is missing, invalid or out "
            "of date."
        ),
    ] = Duration.parse("5m")
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc(
            "How often the list is confirmed and the file is checked. Changes are noticed "
            "immediately."
        ),
    ] = Duration.parse("10s")
    max_size: Annotated[
        ByteSize,
        AtLeast("1KiB"),
        Doc("Largest size; a larger file is not read."),
    ] = ByteSize.parse("10MiB")
