"""Checks of `podgpu doctor` for the sink `jsonl`: the file and its folder."""

import os
from pathlib import Path

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.file_access import access_fix, access_problem, check_writable
from pipeline.files.symlink_chain import untrusted_link
from sinks.jsonl.line_writer import UNTRUSTED_LINK, UNTRUSTED_LINK_FIX
from sinks.jsonl.options import STDOUT, Options


def examine(options: Options, _ctx: DoctorContext) -> Finding:
    """Check `jsonl.file`."""
    check = Check("jsonl.file", FAILS)
    if options.path == STDOUT:
        return check.ok("standard output", "is always available")
    # Before access: with `fs.protected_symlinks`, the kernel denies access through such a link.
    if link := untrusted_link(options.path):
        return check.failure(options.path, f"{link} {UNTRUSTED_LINK}", UNTRUSTED_LINK_FIX)
    if problem := access_problem(Path(options.path)):
        return check.failure(options.path, problem, access_fix(Path(options.path)))
    # Use the path as configured: the resolved path of a pipe's descriptor does not exist.
    if Path(options.path).is_fifo() or Path(options.path).is_socket():
        fix = f'set the path of a file, or "{STDOUT}" for standard output'
        return check.failure(options.path, "is not a regular file", fix)
    # Rotation creates files next to the file itself, not next to a link to it.
    path = Path(os.path.realpath(options.path))
    return check_writable(
        check, path, replaces=bool(options.max_size or options.max_age), streams=True
    )
