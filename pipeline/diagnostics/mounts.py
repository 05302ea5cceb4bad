"""The file system of a path, from the kernel's mount table."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, proc: Path) -> str:
    """Return the type of the file system, such as `ext4`. Blocking.

    Args:
        path: an existing file or folder.
        proc: where procfs is mounted.

    Returns:
        The type; an empty text if it is unknown.
    """
    real, best, kind = os.path.realpath(path), "", ""
    for point, mount_kind in _mounts(proc):
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Of two mounts at the same path, the later one is visible.
        if inside and len(point) >= len(best):
            best, kind = point, mount_kind
    return kind


def is_mounted(path: Path, proc: Path) -> bool:
    """Return whether a file is a mount point, so that it cannot be replaced. Blocking."""
    real = os.path.realpath(path)
    return any(point == real for point, _ in _mounts(proc))


def _mounts(proc: Path) -> Iterator[tuple[str, str]]:
    """Yield mount point and file system type of each mount; see proc_pid_mountinfo(5).

    The mount point is the fifth field, the type the first one after the separator.
    """
    try:
        text = (proc / "self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) >= 5 and after:
            yield _OCTAL.sub(lambda found: chr(int(found[1], 8)), words[4]), after.split(" ")[0]
