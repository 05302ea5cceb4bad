"""The options of the kernel source."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import Doc


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a source of kind `kernel`."""

    path: Annotated[Path, Doc("The device of the kernel log.")] = Path("/dev/kmsg")
    proc: Annotated[
        Path,
        Doc(
            "Where the host's /proc is mounted. With the host's pid namespace (hostPID: true), "
            "this is /proc itself."
        ),
    ] = Path("/proc")

    def exclusive(self) -> Iterable[str]:
        """Return what only one source may read: two sources would report each error twice."""
        return ("the kernel's log",)
