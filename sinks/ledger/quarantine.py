"""Quarantine: renames a damaged ledger, and never deletes one. Functions block."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipeline.ledger.errors import CorruptError, LedgerError

MAX_FILES: Final = 3
"""Maximum number of renamed files of a ledger. A broken disk could otherwise fill up with them, and
podgpu cannot know which of them can be deleted."""

_SUFFIXES: Final = ("-wal", "-shm")


def quarantine(path: Path, now_ns: int, why: CorruptError) -> Path:
    """Rename the file and its log, and return the file's new path.

    Args:
        path: the file, which is not open.
        now_ns: now, in nanoseconds of Unix time.
        why: what is wrong with it.

    Raises:
        LedgerError: the file cannot be renamed, or there are too many renamed files already.
    """
    try:
        existing = quarantined_files(path)
        if len(existing) >= MAX_FILES:
            listed = ", ".join(each.name for each in existing)
            fix = f"check its disk; save or remove the files that were renamed before: {listed}"
            raise LedgerError(str(path), why.problem, fix, reason="corrupt")
        stamp = datetime.fromtimestamp(max(now_ns, 0) // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
        taken = {each.name for each in existing}
        names = (f"{path.name}.corrupt-{stamp}{letter}" for letter in ("", *"abcdef"))
        renamed = path.with_name(next(name for name in names if name not in taken))
        # The log first. If this is interrupted, the file is still recognised as damaged.
        for end in _SUFFIXES:
            log = path.with_name(path.name + end)
            if log.exists():
                log.rename(renamed.with_name(renamed.name + end))
        path.rename(renamed)
    except OSError as error:
        fix = "make its folder writable for podgpu, or move the file away"
        problem = f"{why.problem}, and cannot be renamed: {(error.strerror or str(error)).lower()}"
        raise LedgerError(str(path), problem, fix, reason="corrupt") from error
    return renamed


def quarantined_files(path: Path) -> list[Path]:
    """Return the renamed files of a ledger, the oldest first.

    Raises:
        OSError: the folder cannot be read.
    """
    pattern = re.compile(re.escape(path.name) + r"\.corrupt-[0-9]{8}T[0-9]{6}Z[a-f]?", re.ASCII)
    return sorted(each for each in path.parent.iterdir() if pattern.fullmatch(each.name))
