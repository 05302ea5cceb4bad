"""Opens what lines are written to. Blocks, and runs in the sink's own thread."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError
from pipeline.files.symlink_chain import foreign_link
from pipeline.model import Instant
from sinks.jsonl.fault_reports import FailureLog
from sinks.jsonl.options import STDOUT, Options
from sinks.jsonl.rotating_file import FileTarget
from sinks.jsonl.target import StreamTarget, Target, abandoned

_STDOUT_FD: Final = 1
FOREIGN: Final = "is a symbolic link that others may have put there"
FOREIGN_FIX: Final = (
    "give the path that it leads to, or a folder that only root or podgpu's user may write"
)


def open_target(options: Options, now: Instant, troubles: FailureLog) -> Target:
    """Open a file, or something like one; the end of a file that was cut off is mended.

    Args:
        options: see `docs/sinks/jsonl.md`.
        now: the time of the start.
        troubles: where failures are noted that cost no line.

    Raises:
        OSError: it can't be opened now.
        PermanentError: it is nothing that lines can be written to.
    """
    if options.path == STDOUT:
        if abandoned(_STDOUT_FD):
            raise OSError(errno.EPIPE, "nobody reads it")
        return StreamTarget(_STDOUT_FD, owned=False)
    if link := foreign_link(options.path):
        raise PermanentError(f"{options.path}: {link} {FOREIGN}; {FOREIGN_FIX}")
    # Rotation belongs beside the file itself, not beside a link to it.
    path = Path(os.path.realpath(options.path))
    if not path.parent.is_dir():
        raise PermanentError(
            f"the folder {path.parent} of {options.path} isn't there: make it (mkdir -p), "
            "or give another path"
        )
    try:
        # Not the path that was worked out: the descriptor of a pipe leads to no real one.
        mode = Path(options.path).stat().st_mode
    except FileNotFoundError:
        return FileTarget(path, options, now, troubles)
    if stat.S_ISREG(mode):
        return FileTarget(path, options, now, troubles)
    if stat.S_ISCHR(mode):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
        return StreamTarget(os.open(path, flags), owned=True)
    what = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
    raise PermanentError(
        f'{options.path} is {what}: give the path of a file, or "{STDOUT}" for standard output'
    )


def fix_for(cause: OSError) -> str:
    """Return what to do about it, in brackets, where that isn't plain; else nothing."""
    if cause.errno == errno.EBUSY:
        return " (a file that is mounted by itself can't be rotated: set max_size to 0B)"
    return ""
