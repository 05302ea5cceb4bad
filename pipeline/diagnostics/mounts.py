"""Which file system a path is on, by the kernel's list of mounts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, proc: Path) -> str:
    """Return the kind of file system, such as `ext4`. Blocking.

    Args:
        path: a file or folder that is there.
        proc: where procfs is mounted.

    Returns:
        An empty text where it can't be told.
    """
    where, best, kind = os.path.realpath(path), "", ""
    for point, named in _mounts(proc):
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        # Of two mounts at one place the later one is seen.
        if inside and len(point) >= len(best):
            best, kind = point, named
    return kind


def is_mounted(path: Path, proc: Path) -> bool:
    """Whether a file is mounted by itself, so that nothing can be put in its place. Blocking."""
    where = os.path.realpath(path)
    return any(point == where for point, _ in _mounts(proc))


def _mounts(proc: Path) -> Iterator[tuple[str, str]]:
    """Yield place and kind of each mount; see proc_pid_mountinfo(5).

    The place is the fifth word, the kind the first after the lone hyphen.
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
