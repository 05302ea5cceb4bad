"""Delivery options, for every sink that sends through a queue."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import ByteSize, Duration


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The queue: where data waits for the receiver, how much, and how fast a backlog is sent."""

    path: Annotated[
        Path | None,
        Doc("Folder of the queue; created if missing. Without it, data waits in memory."),
    ] = None
    max_size: Annotated[
        ByteSize,
        AtLeast("1MiB"),
        AtMost("1TiB"),
        Doc("Maximum size of the queue; beyond it the oldest data is dropped and counted."),
    ] = ByteSize.parse("64MiB")
    fsync: Annotated[
        Duration,
        Doc(
            "Interval of flushes to the disk; a power failure loses about this much. 0s leaves "
            "flushing to the system."
        ),
    ] = Duration.parse("1s")
    max_rate: Annotated[
        ByteSize,
        Doc("Maximum bytes sent per second while there is a backlog; 0B for no limit."),
    ] = ByteSize.parse("4MiB")

    def problems(self) -> Iterable[tuple[str, str]]:
        """Yield a problem if the path is relative: it would depend on the working directory."""
        if self.path is not None and not self.path.is_absolute():
            yield "path", f"{self.path} is a relative path; write the absolute path"

    def exclusive(self) -> Iterable[str]:
        """Yield the folder, which only one queue may use. For a sink's own `exclusive`."""
        if self.path is not None:
            yield f"the folder {os.path.normpath(self.path)}"


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before data is sent again. There is no limit of retries."""

    initial: Annotated[
        Duration,
        AtLeast("10ms"),
        AtMost("10m"),
        Doc("First wait before a retry; each further wait is twice as long."),
    ] = Duration.parse("1s")
    max: Annotated[
        Duration,
        AtLeast("10ms"),
        AtMost("1h"),
        Doc("Longest wait, even if the receiver requests more."),
    ] = Duration.parse("30s")


def sends(options: msgspec.Struct) -> bool:
    """Return whether a sink with these options sends through a queue and counts every point."""
    return isinstance(getattr(options, "queue", None), QueueOptions)
