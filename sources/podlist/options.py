"""Options of the podlist source."""

from pathlib import Path
from typing import Annotated, Literal

from config.option_markers import Doc
from pipeline.component.claim_file_options import ClaimFileOptions


class Options(ClaimFileOptions, frozen=True, kw_only=True):
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
