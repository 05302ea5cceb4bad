"""What `podgpu doctor` looks at for the ledger: its folder, its file, and who has it."""

import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.file_permissions import inaccessible
from pipeline.diagnostics.mounts import file_system
from pipeline.diagnostics.process_lookup import lock_owner
from pipeline.diagnostics.write_access import check_writable
from pipeline.ledger.errors import ForeignError, LedgerError
from pipeline.ledger.file_open import READ_ERRORS, open_readonly, to_ledger_error
from sinks.ledger.options import Options
from sinks.ledger.writer_lock import lock_of

_SMALL: Final = 32 << 20
"""Bytes up to which a file is looked through page by page."""

_VOLATILE: Final = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "fuse.fuse-overlayfs"})
_DISK: Final = "mount a folder of the node's disk (hostPath) that podgpu may write to"


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `ledger.file`."""
    return [await in_thread(partial(_look, options.path, options.max_size, ctx.roots.proc))]


def _look(path: Path, max_size: ByteSize, proc: Path) -> Finding:
    check, place, folder = CHECKS["ledger.file"], str(path), path.parent
    found = check_writable(check, path, replaces=True)
    if found.verdict is not Verdict.OK:
        return found
    beside = [path.with_name(path.name + end) for end in ("", "-wal", "-shm", ".lock")]
    if closed := inaccessible(beside):
        saw = f"{closed[0].name} may not be read and written by uid {os.geteuid()}"
        mend = f"chown {os.geteuid()} {place}*: podgpu ran as somebody else before"
        return check.failure(place, saw, mend)
    if owner := lock_owner(lock_of(path), proc):
        mend = "end that one, or give another path: each podgpu needs a ledger of its own"
        return check.failure(place, f"is in use by {owner}", mend)
    if path.exists() and path.stat().st_size:
        try:
            _read(path)
        except ForeignError as error:
            return check.failure(place, error.problem, error.fix)
        except LedgerError as error:
            mend = "nothing, or save it: podgpu sets a spoilt file aside and begins a new one"
            return check.warning(place, error.problem, mend)
    kind = file_system(folder, proc)
    if kind in _VOLATILE:
        return check.warning(place, f"is on {kind}: what stands there is gone with it", _DISK)
    space = os.statvfs(folder)
    free, used = space.f_bavail * space.f_frsize, path.stat().st_size if path.exists() else 0
    if space.f_blocks and free + used < max_size:
        saw = f"{free >> 20} MiB are free, fewer than max_size ({max_size})"
        return check.warning(place, saw, "make room on that disk, or lower max_size")
    return found


def _read(path: Path) -> None:
    """See that it is a ledger, and if it is small that it is whole.

    Raises:
        LedgerError: it isn't.
    """
    with closing(open_readonly(path)) as connection:
        if path.stat().st_size > _SMALL:
            return
        try:
            (told,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except READ_ERRORS as error:
            raise to_ledger_error(str(path), error) from error
        if told != "ok":
            raise LedgerError(str(path), str(told), "save it")
