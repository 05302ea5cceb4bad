"""Whether podgpu may replace, read and write existing files. Nothing is changed to find out."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FOWNER: Final = 3
"""CAP_FOWNER; see capabilities(7)."""


def not_replaceable_reason(path: Path) -> str:
    """Return why a file in a writable folder cannot be replaced; empty if it can. Blocking.

    In a sticky folder such as /tmp, only the owner of the file or of the folder may rename or
    remove the file; see unlink(2).
    """
    try:
        folder, file = path.parent.stat(), path.lstat()
    except OSError:
        return ""
    uid = os.geteuid()
    if not folder.st_mode & stat.S_ISVTX or uid in (folder.st_uid, file.st_uid) or _is_privileged():
        return ""
    return (
        f"belongs to uid {file.st_uid}, and {path.parent} is sticky "
        f"(mode {stat.S_IMODE(folder.st_mode):o}): uid {uid} may not replace it"
    )


def inaccessible(paths: Iterable[Path]) -> list[Path]:
    """Return the existing files that podgpu may not both read and write. Blocking."""
    return [
        path
        for path in paths
        if path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    ]


def _is_privileged() -> bool:
    """Whether this process has CAP_FOWNER, by the line `CapEff` of proc_pid_status(5)."""
    try:
        rows = Path("/proc/self/status").read_bytes().splitlines()
        effective = next(row.split()[1] for row in rows if row.startswith(b"CapEff:"))
        return bool(int(effective, 16) >> _FOWNER & 1)
    except (OSError, ValueError, StopIteration, IndexError):
        return os.geteuid() == 0
