"""Functions that find out whether podgpu can read, write and replace a file, and its file system.

They write nothing. All functions block.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pipeline.component.findings import Check, Finding

_FOWNER: Final = 3
"""CAP_FOWNER; see capabilities(7)."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_FIX: Final = "mount the folder {folder} so that uid {uid} may write to it, or give another path"


def access_problem(path: Path) -> str:
    """Return why a path cannot be accessed, for people.

    The text is empty if the path is accessible or does not exist. `Path.exists` and similar
    methods may raise an error if a path cannot be accessed.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except PermissionError:
        return f"permission denied to uid {os.geteuid()}"
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else None
        return os.strerror(code).lower() if code else str(error)
    return ""


def access_fix(path: Path) -> str:
    """Return how to give podgpu access to a path."""
    return (
        f"run podgpu as root or with the capability DAC_OVERRIDE, or give uid {os.geteuid()} "
        f"access to {path.parent}"
    )


def check_writable(check: Check, path: Path, *, replaces: bool, streams: bool = False) -> Finding:
    """Return a finding about a file that a sink writes, and about its folder.

    Args:
        check: the check to which the finding belongs.
        path: the file.
        replaces: whether the sink replaces the file, so that the folder must be writable.
        streams: whether the file may also be a character device.
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
        device_fix = f"let uid {os.geteuid()} write to it, or give another path"
        return (
            check.ok(str(path), "is a writable device")
            if os.access(path, os.W_OK)
            else check.failure(str(path), "is not writable", device_fix)
        )
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        return check.failure(str(path), f"{folder} is mounted read-only", fix)
    if (mode is None or replaces) and not os.access(folder, os.W_OK | os.X_OK):
        return check.failure(str(path), f"{folder} is not writable", fix)
    if mode is not None and replaces and (why := not_replaceable_reason(path)):
        owner = (
            f"chown {os.geteuid()} or remove the file, or give a path in a folder that belongs to "
            "podgpu's user"
        )
        return check.failure(str(path), why, owner)
    if mode is not None and not replaces and not os.access(path, os.W_OK):
        return check.failure(str(path), "is not writable", fix)
    # Some file systems, such as those of file servers, report 0 blocks; they are not full.
    if space.f_blocks and not space.f_bavail:
        room = f"make space on the disk of {folder}, or give another path"
        return check.failure(str(path), "the disk is full", room)
    return check.ok(str(path), "is writable" if mode is not None else "can be created")


def _wrong_type(mode: int | None, *, streams: bool) -> str:
    """Return what the path is, for people, if a sink cannot use it; otherwise an empty text."""
    if mode is None or stat.S_ISREG(mode) or (streams and stat.S_ISCHR(mode)):
        return ""
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a link" if stat.S_ISLNK(mode) else "not a regular file"


def not_replaceable_reason(path: Path) -> str:
    """Return why a file in a writable folder cannot be replaced; empty if no reason is known.

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
    """Return the existing files that podgpu may not read or may not write."""
    return [
        path
        for path in paths
        if path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    ]


def _is_privileged() -> bool:
    """Return whether this process has CAP_FOWNER, by `CapEff` in proc_pid_status(5)."""
    try:
        rows = Path("/proc/self/status").read_bytes().splitlines()
        effective = next(row.split()[1] for row in rows if row.startswith(b"CapEff:"))
        return bool(int(effective, 16) >> _FOWNER & 1)
    except (OSError, ValueError, StopIteration, IndexError):
        return os.geteuid() == 0


def file_system(path: Path, proc: Path) -> str:
    """Return the type of a file system, such as `ext4`.

    Args:
        path: an existing file or folder on the file system.
        proc: where procfs is mounted.

    Returns:
        The type; empty if it is unknown.
    """
    real, best, kind = os.path.realpath(path), "", ""
    for point, mount_kind in _mounts(proc):
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Of two mounts at the same path, the later one is visible.
        if inside and len(point) >= len(best):
            best, kind = point, mount_kind
    return kind


def is_mounted(path: Path, proc: Path) -> bool:
    """Return whether a file is itself a mount point. Such a file cannot be replaced."""
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
