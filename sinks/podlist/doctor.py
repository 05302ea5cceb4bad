"""Checks of `podgpu doctor` for the podlist sink: the file, its folder and its mount."""

from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.file_access import access_fix, access_problem, check_writable, is_mounted
from sinks.podlist.options import Options


def examine(options: Options, ctx: DoctorContext) -> Finding:
    """Run the check `podlist.target`."""
    check, path = Check("podlist.target", BOTH), options.path
    if problem := access_problem(path):
        return check.failure(str(path), problem, access_fix(path))
    if path.is_symlink():
        observed = "is a symbolic link, which a write would replace by a file"
        return check.failure(str(path), observed, f"set path to {path.resolve()}")
    renames = options.write == "rename"
    if renames and is_mounted(path, ctx.roots.proc):
        observed = "is a mount point, so it cannot be replaced"
        fix = f"mount the folder {path.parent} instead, or set write: inplace"
        return check.warning(str(path), observed, fix)
    return check_writable(check, path, replaces=renames)
