"""What can be set for the ledger."""

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
        Doc("The file, in a folder of the node's own disk that is there; SQLite keeps two beside."),
    ]
    keep: Annotated[
        Duration, AtLeast("0s"), Doc("How long hours and holdings are kept; 0s for ever.")
    ] = Duration.parse("400d")
    max_size: Annotated[
        ByteSize,
        AtLeast("1MiB"),
        Doc("What the file may hold; whole days, the oldest first, make room."),
    ] = ByteSize.parse("256MiB")
    commit_interval: Annotated[
        Duration,
        AtLeast("100ms"),
        AtMost("60s"),
        Doc("How often what was used is written, at most: SIGKILL costs so much, as a gap."),
    ] = Duration.parse("5s")
    synchronous: Annotated[
        Literal["normal", "full"],
        Doc("Whether a power cut may cost the last commits (normal) or none (full)."),
    ] = "normal"

    def problems(self) -> Iterable[tuple[str, str]]:
        """A path that depends on where podgpu was started leads somewhere else each time."""
        if not self.path.is_absolute():
            yield "path", f"{self.path} is not absolute: begin it with /"

    def exclusive(self) -> Iterable[str]:
        """A ledger has one writer."""
        return (f"the file {os.path.normpath(self.path)}",)
