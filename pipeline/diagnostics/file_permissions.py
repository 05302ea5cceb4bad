"""Who may change what stands in a folder already, told without changing anything."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FOWNER: Final = 3
"""CAP_FOWNER; see capabilities(7)."""


def not_replaceable_reason(path: Path) -> str:
    """Return why a file can't be replaced though its folder may be written to; empty if it can.

    In a sticky folder, as /tmp is, only the owner of the file or of the folder may rename or remove
    it; see unlink(2). Blocking.
    """
    try:
        folder, file = path.parent.stat(), path.lstat()
    except OSError:
        return ""
    ours = os.geteuid()
    if (
        not folder.st_mode & stat.S_ISVTX
        or ours in (folder.st_uid, file.st_uid)
        or _is_privileged()
    ):
        return ""
    return (
        f"belongs to uid {file.st_uid}, and {path.parent} is sticky "
        f"(mode {stat.S_IMODE(folder.st_mode):o}): uid {ours} may not replace it"
    )


def inaccessible(paths: Iterable[Path]) -> list[Path]:
    """Return which of these files are there and may not be both read and written. Blocking."""
    return [
        path
        for path in paths
        if path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    ]


def _is_privileged() -> bool:
    """Whether this process may act as any file's owner, by the line `CapEff` of proc(5)."""
    try:
        rows = Path("/proc/self/status").read_bytes().splitlines()
        effective = next(row.split()[1] for row in rows if row.startswith(b"CapEff:"))
        return bool(int(effective, 16) >> _FOWNER & 1)
    except (OSError, ValueError, StopIteration, IndexError):
        return os.geteuid() == 0
