"""The checks of `podgpu doctor` for the ledger: its folder, its file, its lock and its archive."""

import os
from contextlib import closing
from pathlib import Path
from typing import Final

from pipeline.component.findings import BOTH, WARNS, Check, Finding, Verdict
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.file_access import check_writable, file_system, inaccessible
from pipeline.diagnostics.process_lookup import lock_owner
from pipeline.ledger.archive_backlog import read_backlog
from pipeline.ledger.file_open import (
    ForeignError,
    LedgerError,
    check_integrity,
    ledger_errors,
    open_readonly,
)
from pipeline.ledger.schema import HOUR_NS
from sinks.ledger.options import Options
from sinks.ledger.writer_lock import lock_of

_VOLATILE: Final = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "fuse.fuse-overlayfs"})
_DISK: Final = "mount a folder of the node's disk (hostPath) that podgpu may write to"


def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Run the check `ledger.file`; for a ledger with an archive, also `ledger.archive`."""
    found = [_file(options, ctx)]
    if found[0].verdict is not Verdict.FAILURE and options.path.exists():
        found += _archive(options.path, ctx)
    return found


def _archive(path: Path, ctx: DoctorContext) -> list[Finding]:
    """Return a finding about the archive, if the ledger has one and can be read."""
    check, now_ns = Check("ledger.archive", WARNS), ctx.clock.now().wall_ns
    try:
        with ledger_errors(path), closing(open_readonly(path)) as connection:
            backlog = read_backlog(connection, now_ns)
    except LedgerError:
        return []  # `ledger.file` has reported it
    if backlog is None:
        return []
    if not backlog.is_overdue(now_ns):
        return [check.ok(str(path), f"{backlog.rows} rows wait for the archive")]
    since = "never was"
    if backlog.written_ns is not None:
        since = f"has not been for {(now_ns - backlog.written_ns) // HOUR_NS} hours"
    problem = f"should be written to its archive, and {since}: {backlog.rows} rows wait"
    fix = "check that podgpu archive runs, and read its log; podgpu archive --once tries it now"
    return [check.warning(str(path), problem, fix)]


def _file(options: Options, ctx: DoctorContext) -> Finding:
    check, path, max_size = Check("ledger.file", BOTH), options.path, options.max_size
    name, folder = str(path), path.parent
    found = check_writable(check, path, replaces=True)
    if found.verdict is not Verdict.OK:
        return found
    files = [path.with_name(path.name + end) for end in ("", "-wal", "-shm", ".lock")]
    if denied := inaccessible(files):
        problem = f"{denied[0].name} is not readable and writable by uid {os.geteuid()}"
        fix = f"run chown {os.geteuid()} {name}*: podgpu ran as another user before"
        return check.failure(name, problem, fix)
    if owner := lock_owner(lock_of(path), ctx.roots.proc):
        fix = "stop that podgpu, or give another path: each podgpu needs its own ledger"
        return check.failure(name, f"is in use by {owner}", fix)
    if path.exists() and path.stat().st_size:
        try:
            with ledger_errors(path), closing(open_readonly(path)) as connection:
                check_integrity(connection, path)
        except ForeignError as error:
            return check.failure(name, error.problem, error.fix)
        except LedgerError as error:
            fix = "save a copy if needed: podgpu renames a damaged file and starts a new one"
            return check.warning(name, error.problem, fix)
    kind = file_system(folder, ctx.roots.proc)
    if kind in _VOLATILE:
        text = f"is on {kind}: the data is lost when the container or node restarts"
        return check.warning(name, text, _DISK)
    space = os.statvfs(folder)
    free, used = space.f_bavail * space.f_frsize, path.stat().st_size if path.exists() else 0
    if space.f_blocks and free + used < max_size:
        problem = f"{free >> 20} MiB are free, less than max_size ({max_size})"
        return check.warning(name, problem, "free space on that disk, or lower max_size")
    return found
