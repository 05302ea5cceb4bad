"""Sets a ledger aside that can't be used, and never removes one. Blocks."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipeline.ledger.errors import CorruptError, LedgerError

MAX_FILES: Final = 3
"""How many files that were set aside may lie beside a ledger. A disk that spoils one after the
other would fill up else; which of them is dispensable, podgpu can't know."""

_BESIDE: Final = ("-wal", "-shm")


def quarantine(path: Path, now_ns: int, why: CorruptError) -> Path:
    """Rename the file, with its log, and return where it is now.

    Args:
        path: the file; nobody has it open.
        now_ns: the present, in nanoseconds of Unix time.
        why: what is wrong with it.

    Raises:
        LedgerError: it can't be renamed, or there are too many already.
    """
    try:
        there = quarantined_files(path)
        if len(there) >= MAX_FILES:
            told = ", ".join(each.name for each in there)
            mend = f"look at its disk; save or remove what was set aside before: {told}"
            raise LedgerError(str(path), why.problem, mend, reason="corrupt")
        stamp = datetime.fromtimestamp(max(now_ns, 0) // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
        taken = {each.name for each in there}
        names = (f"{path.name}.corrupt-{stamp}{more}" for more in ("", *"abcdef"))
        aside = path.with_name(next(name for name in names if name not in taken))
        # The log first: without it the file is still known to be spoilt when this is cut short.
        for end in _BESIDE:
            log = path.with_name(path.name + end)
            if log.exists():
                log.rename(aside.with_name(aside.name + end))
        path.rename(aside)
    except OSError as error:
        mend = "let podgpu write to its folder, or move the file away"
        saw = f"{why.problem}, and can't be renamed: {(error.strerror or str(error)).lower()}"
        raise LedgerError(str(path), saw, mend, reason="corrupt") from error
    return aside


def quarantined_files(path: Path) -> list[Path]:
    """Return what was set aside, the oldest first.

    Raises:
        OSError: the folder can't be read.
    """
    pattern = re.compile(re.escape(path.name) + r"\.corrupt-[0-9]{8}T[0-9]{6}Z[a-f]?", re.ASCII)
    return sorted(each for each in path.parent.iterdir() if pattern.fullmatch(each.name))
