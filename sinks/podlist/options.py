"""Options of the podlist sink."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import Doc


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which pod list is kept and how it is written."""

    path: Annotated[
        Path,
        Doc("The file, in a folder that is there; not a symbolic link."),
    ] = Path("/var/lib/kubelet/pod-resources/podlist.json")
    write: Annotated[
        Literal["rename", "inplace"],
        Doc("Put a finished file in its place, or write into it for readers that mount the file."),
    ] = "rename"
    ids: Annotated[
        Literal["uuid", "minor"],
        Doc("What a GPU is called: its uuid, or N of /dev/nvidiaN. A MIG instance has its uuid."),
    ] = "uuid"

    def problems(self) -> Iterable[tuple[str, str]]:
        """Refuse what can be no file's path."""
        if self.path.name in ("", ".."):
            yield "path", f"{self.path} is a folder: give the path of a file"

    def exclusive(self) -> Iterable[str]:
        """Two that replace one file would take turns for ever."""
        return (f"the file {os.path.normpath(self.path)}",)
