"""Whether a sink can write its file. Nothing is written to find out."""

import os
import stat
from pathlib import Path
from typing import Final

from pipeline.component.findings import Check, Finding
from pipeline.diagnostics.file_permissions import not_replaceable_reason
from pipeline.diagnostics.path_access import access_fix, access_problem

_FIX: Final = "mount the folder {folder} writable for uid {uid}, or give another path"


def check_writable(check: Check, path: Path, *, replaces: bool, streams: bool = False) -> Finding:
    """Check a file that a sink writes, and its folder. Blocking.

    Args:
        check: the check that makes the finding.
        path: the file.
        replaces: the sink replaces the file, so the folder must be writable.
        streams: a character device is accepted too.
    """
    folder = path.parent
    fix = _FIX.format(folder=folder, uid=os.geteuid())
    if problem := access_problem(path):
        return check.failure(str(path), problem, access_fix(path))
    if not folder.is_dir():
        observed = f"folder {folder} does not exist"
        return check.failure(str(path), observed, f"create it (mkdir -p) or mount it; {fix}")
    try:
        mode = path.lstat().st_mode
    except OSError:
        mode = None
    if wrong := _wrong_type(mode, streams=streams):
        return check.failure(str(path), f"is {wrong}", "give the path of a file")
    if mode is not None and not stat.S_ISREG(mode):
        return _stream(check, path)
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        return check.failure(str(path), f"{folder} is mounted read-only", fix)
    if (mode is None or replaces) and not os.access(folder, os.W_OK | os.X_OK):
        return check.failure(str(path), f"{folder} is not writable", fix)
    if mode is not None and replaces and (why := not_replaceable_reason(path)):
        owner = f"chown {os.geteuid()} or remove the file, or give a path in a folder of podgpu's"
        return check.failure(str(path), why, owner)
    if mode is not None and not replaces and not os.access(path, os.W_OK):
        return check.failure(str(path), "is not writable", fix)
    # Some file systems, such as those of file servers, report 0 blocks; they are not full.
    if space.f_blocks and not space.f_bavail:
        room = f"free space on the disk of {folder}, or give another path"
        return check.failure(str(path), "the disk is full", room)
    return check.ok(str(path), "is writable" if mode is not None else "can be created")


def _wrong_type(mode: int | None, *, streams: bool) -> str:
    """Return what the path is instead of a file, for people; empty if it is usable."""
    if mode is None or stat.S_ISREG(mode) or (streams and stat.S_ISCHR(mode)):
        return ""
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a link" if stat.S_ISLNK(mode) else "not a regular file"


def _stream(check: Check, path: Path) -> Finding:
    if os.access(path, os.W_OK):
        return check.ok(str(path), "is a writable device")
    fix = f"let uid {os.geteuid()} write to it, or give another path"
    return check.failure(str(path), "is not writable", fix)
