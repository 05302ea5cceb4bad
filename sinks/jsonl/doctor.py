"""Checks of `podgpu doctor` for the sink `jsonl`: the file and its folder."""

import os
import stat
from pathlib import Path

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.path_access import access_fix, access_problem
from pipeline.diagnostics.write_access import check_writable
from pipeline.files.symlink_chain import untrusted_link
from sinks.jsonl.options import STDOUT, Options
from sinks.jsonl.target_factory import UNTRUSTED_LINK, UNTRUSTED_LINK_FIX


def examine(options: Options, _ctx: DoctorContext) -> Finding:
    """Check `jsonl.file`."""
    check = Check("jsonl.file", FAILS)
    if options.path == STDOUT:
        return check.ok("standard output", "is always available")
    if problem := access_problem(Path(options.path)):
        return check.failure(options.path, problem, access_fix(Path(options.path)))
    # Use the path as configured: the resolved path of a pipe's descriptor does not exist.
    if pipe := _pipe(options.path):
        fix = f'set the path of a file, or "{STDOUT}" for standard output'
        return check.failure(options.path, pipe, fix)
    if link := untrusted_link(options.path):
        return check.failure(options.path, f"{link} {UNTRUSTED_LINK}", UNTRUSTED_LINK_FIX)
    # Rotation creates files next to the file itself, not next to a link to it.
    path = Path(os.path.realpath(options.path))
    return check_writable(
        check, path, replaces=bool(options.max_size or options.max_age), streams=True
    )


def _pipe(path: str) -> str:
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return ""
    return "is not a regular file" if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else ""
