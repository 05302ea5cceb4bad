"""What `podgpu doctor` looks at for the podlist sink: the file, its folder, its mount."""

from functools import partial
from pathlib import Path

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.mounts import is_mounted
from pipeline.diagnostics.path_access import access_fix, access_problem
from pipeline.diagnostics.write_access import check_writable
from sinks.podlist.options import Options


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `podlist.target`."""
    return [await in_thread(partial(_look, options, ctx.roots.proc))]


def _look(options: Options, proc: Path) -> Finding:
    check, path = CHECKS["podlist.target"], options.path
    if told := access_problem(path):
        return check.failure(str(path), told, access_fix(path))
    if path.is_symlink():
        saw = "is a symbolic link, which would be replaced by a file"
        return check.failure(str(path), saw, f"set path to {path.resolve()}")
    renames = options.write == "rename"
    if renames and is_mounted(path, proc):
        saw = "is mounted by itself: nothing can be put in its place"
        mend = f"mount the folder {path.parent} instead, or set write: inplace"
        return check.warning(str(path), saw, mend)
    return check_writable(check, path, replaces=renames)
