"""Options of the podlist sink."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import Doc


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options: which pod list is written, and how."""

    path: Annotated[
        Path,
        Doc("Path of the file. Its folder must exist, and it must not be a symbolic link."),
    ] = Path("/var/lib/kubelet/pod-resources/podlist.json")
    write: Annotated[
        Literal["rename", "inplace"],
        Doc(
            "How the file is updated: replaced by a new file (rename), or written into (inplace), "
            "for readers that mount the file."
        ),
    ] = "rename"
    ids: Annotated[
        Literal["uuid", "minor"],
        Doc(
            "How a GPU is identified: by its UUID, or by N of /dev/nvidiaN (minor). A MIG instance "
            "always has its UUID."
        ),
    ] = "uuid"

    def problems(self) -> Iterable[tuple[str, str]]:
        """Yield a problem if the path cannot be that of a file."""
        if self.path.name in ("", ".."):
            yield "path", f"{self.path} is a folder: give the path of a file"

    def exclusive(self) -> Iterable[str]:
        """Return the resource that only one sink may use: two would overwrite the same file."""
        return (f"the file {os.path.normpath(self.path)}",)
