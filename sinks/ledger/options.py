"""Options of the sink `ledger`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import ByteSize, Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the sink `ledger`."""

    path: Annotated[
        Path,
        Doc("The file, in an existing folder on a disk of the node. SQLite adds two more files."),
    ]
    keep: Annotated[
        Duration, AtLeast("0s"), Doc("How long hours and holdings are kept; 0s means for ever.")
    ] = Duration.parse("400d")
    max_size: Annotated[
        ByteSize,
        AtLeast("1MiB"),
        Doc("Maximum size of the file. If it is reached, the oldest days are removed."),
    ] = ByteSize.parse("256MiB")
    commit_interval: Annotated[
        Duration,
        AtLeast("100ms"),
        AtMost("60s"),
        Doc("Minimum time between two commits. SIGKILL loses up to this much usage, as a gap."),
    ] = Duration.parse("5s")
    synchronous: Annotated[
        Literal["normal", "full"],
        Doc("Whether a power failure can lose the last commits (normal) or none (full)."),
    ] = "normal"

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report a relative path, because it depends on where podgpu was started."""
        if not self.path.is_absolute():
            yield "path", f"{self.path} is not an absolute path: start it with /"

    def exclusive(self) -> Iterable[str]:
        """Return the resource that only one sink may use: a ledger has only one writer."""
        return (f"the file {os.path.normpath(self.path)}",)
