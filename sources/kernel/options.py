"""Options of the kernel source."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import Doc


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where the kernel's log is read, and whose the processes are that it names."""

    path: Annotated[Path, Doc("The device that gives the kernel's log.")] = Path("/dev/kmsg")
    proc: Annotated[
        Path,
        Doc(
            "Where the host's /proc is mounted. /proc itself is the host's where podgpu shares the "
            "host's pid namespace (hostPID)."
        ),
    ] = Path("/proc")

    def exclusive(self) -> Iterable[str]:
        """Two would tell of each error twice, as of two errors."""
        return ("the kernel's log",)
