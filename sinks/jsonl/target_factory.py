"""Open the target of lines. All functions block and run in the sink's thread."""

import errno
import os
import select
import stat
from pathlib import Path
from typing import Final, TypeAlias

from pipeline.base.errors import PermanentError
from pipeline.files.symlink_chain import untrusted_link
from pipeline.model import Instant
from sinks.jsonl.options import STDOUT, Options
from sinks.jsonl.rotating_file import FileTarget
from sinks.jsonl.target import FailureLog, StreamTarget

Target: TypeAlias = FileTarget | StreamTarget

_STDOUT_FD: Final = 1
UNTRUSTED_LINK: Final = "is a symbolic link that another user may have created"
UNTRUSTED_LINK_FIX: Final = (
    "set the path that it points to, or use a folder that only root or podgpu's user can write to"
)


def open_target(options: Options, now: Instant, failures: FailureLog) -> Target:
    """Open a file or a stream, and repair the end of a file.

    Args:
        options: see `docs/sinks/jsonl.md`.
        now: time of the start.
        failures: receives failures that lose no line.

    Raises:
        OSError: it can't be opened now.
        PermanentError: lines can't be written to a path of this type.
    """
    if options.path == STDOUT:
        if _has_no_reader(_STDOUT_FD):
            raise OSError(errno.EPIPE, "no process reads it")
        return StreamTarget(_STDOUT_FD, owned=False)
    if link := untrusted_link(options.path):
        raise PermanentError(f"{options.path}: {link} {UNTRUSTED_LINK}; {UNTRUSTED_LINK_FIX}")
    # Rotation creates files next to the file itself, not next to a link to it.
    path = Path(os.path.realpath(options.path))
    if not path.parent.is_dir():
        raise PermanentError(
            f"the folder {path.parent} of {options.path} does not exist: create it (mkdir -p), "
            "or set another path"
        )
    try:
        # Use the path as configured: the resolved path of a pipe's descriptor does not exist.
        mode = Path(options.path).stat().st_mode
    except FileNotFoundError:
        return FileTarget(path, options, now, failures)
    if stat.S_ISREG(mode):
        return FileTarget(path, options, now, failures)
    if stat.S_ISCHR(mode):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
        return StreamTarget(os.open(path, flags), owned=True)
    what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise PermanentError(
        f'{options.path} is {what}: set the path of a file, or "{STDOUT}" for standard output'
    )


def _has_no_reader(fd: int) -> bool:
    """Whether this is a pipe without a reader."""
    ready = select.poll()
    ready.register(fd, 0)
    return any(found & select.POLLERR for _, found in ready.poll(0))
