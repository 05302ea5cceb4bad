"""What can be set about delivery, for every sink that sends."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import ByteSize, Duration


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where data waits while the receiver takes none."""

    path: Annotated[
        Path | None,
        Doc("Folder of the queue, made where it is missing; none to wait in memory."),
    ] = None
    max_size: Annotated[
        ByteSize,
        AtLeast("1MiB"),
        AtMost("1TiB"),
        Doc("Space that it may take; beyond that the oldest data is dropped and counted."),
    ] = ByteSize.parse("64MiB")
    fsync: Annotated[
        Duration,
        Doc("Flush to the disk so often; a power cut costs no more. 0s leaves that to the system."),
    ] = Duration.parse("1s")
    max_rate: Annotated[
        ByteSize,
        Doc("Bytes that are sent in a second at most, when much has queued up; 0B for no limit."),
    ] = ByteSize.parse("4MiB")

    def problems(self) -> Iterable[tuple[str, str]]:
        """A path has to mean the same wherever podgpu is started."""
        if self.path is not None and not self.path.is_absolute():
            yield "path", f"{self.path} depends on where podgpu is started: write the whole path"

    def exclusive(self) -> Iterable[str]:
        """A folder is one queue's: what a sink's own `exclusive` yields of it."""
        if self.path is not None:
            yield f"the folder {os.path.normpath(self.path)}"


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before data is sent again. It is sent again until it is taken."""

    initial: Annotated[
        Duration,
        AtLeast("10ms"),
        AtMost("10m"),
        Doc("The first wait; each further one is twice as long."),
    ] = Duration.parse("1s")
    max: Annotated[
        Duration,
        AtLeast("10ms"),
        AtMost("1h"),
        Doc("The longest wait, also if the receiver asks for more."),
    ] = Duration.parse("30s")


def sends(options: msgspec.Struct) -> bool:
    """Whether a sink with these options sends through a queue, and accounts for every point."""
    return isinstance(getattr(options, "queue", None), QueueOptions)
