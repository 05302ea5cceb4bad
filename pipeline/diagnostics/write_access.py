"""Whether a file can be written where a sink is to put it. Nothing is written to find out."""

import os
import stat
from pathlib import Path
from typing import Final

from pipeline.component.check import Check
from pipeline.component.findings import Finding
from pipeline.diagnostics.file_permissions import not_replaceable_reason
from pipeline.diagnostics.path_access import access_fix, access_problem

_FIX: Final = "mount the folder {folder} writable for uid {uid}, or give another path"


def check_writable(check: Check, path: Path, *, replaces: bool, streams: bool = False) -> Finding:
    """Look at a file that is to be written, and at its folder. Blocking.

    Args:
        check: whose finding it is.
        path: the file.
        replaces: a new file is put in its place, so that the folder has to take it.
        streams: a device of characters will do as well.
    """
    folder = path.parent
    mend = _FIX.format(folder=folder, uid=os.geteuid())
    if told := access_problem(path):
        return check.failure(str(path), told, access_fix(path))
    if not folder.is_dir():
        saw = f"there is no folder {folder}"
        return check.failure(str(path), saw, f"make it (mkdir -p) or mount it; {mend}")
    try:
        mode = path.lstat().st_mode
    except OSError:
        mode = None
    if what := _wrong_type(mode, streams=streams):
        return check.failure(str(path), f"is {what}", "give the path of a file")
    if mode is not None and not stat.S_ISREG(mode):
        return _stream(check, path)
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        return check.failure(str(path), f"{folder} is mounted read-only", mend)
    if (mode is None or replaces) and not os.access(folder, os.W_OK | os.X_OK):
        return check.failure(str(path), f"{folder} may not be written to", mend)
    if mode is not None and replaces and (why := not_replaceable_reason(path)):
        own = f"chown {os.geteuid()} or remove the file, or give a path in a folder of podgpu's own"
        return check.failure(str(path), why, own)
    if mode is not None and not replaces and not os.access(path, os.W_OK):
        return check.failure(str(path), "may not be written to", mend)
    # A file system that counts no blocks has room, such as one of a file server.
    if space.f_blocks and not space.f_bavail:
        room = f"make room on the disk of {folder}, or give another path"
        return check.failure(str(path), "the disk is full", room)
    return check.ok(str(path), "can be written" if mode is not None else "can be made")


def _wrong_type(mode: int | None, *, streams: bool) -> str:
    """Return what is there instead of a file, for people; empty for what will do."""
    if mode is None or stat.S_ISREG(mode) or (streams and stat.S_ISCHR(mode)):
        return ""
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a link" if stat.S_ISLNK(mode) else "no ordinary file"


def _stream(check: Check, path: Path) -> Finding:
    if os.access(path, os.W_OK):
        return check.ok(str(path), "is a device that can be written to")
    mend = f"let uid {os.geteuid()} write to it, or give another path"
    return check.failure(str(path), "may not be written to", mend)
