"""Checks of `podgpu doctor` for the source `podlist`: the pod list file and its writer."""

from functools import partial
from pathlib import Path
from typing import Final

from pipeline.component.findings import BOTH, Check, Finding, Verdict
from pipeline.diagnostics.claim_file_check import check_file
from pipeline.diagnostics.context import DoctorContext
from sources.podlist.options import Options
from sources.podlist.pod_list_file import read_pod_list

_WRITER: Final = "its writer"
_BOOT: Final = "btime "


def examine(options: Options, ctx: DoctorContext) -> Finding:
    """Return the finding of the check `podlist.file`."""
    check = Check("podlist.file", BOTH)
    read = partial(read_pod_list, path=options.path, integers=options.integers)
    finding = check_file(
        check, options.path, options.max_size, read, writer=_WRITER, clock=ctx.clock
    )
    boot_s = _boot_s(ctx.roots.proc)
    if finding.verdict is not Verdict.OK or boot_s is None:
        return finding
    # The writer writes the file only if the list changes, so an old file may be correct. But no
    # container is older than the node's start.
    if options.path.stat().st_mtime >= boot_s or finding.observed.startswith("0 "):
        return finding
    observed = (
        "is out of date: it was last written before the node started, and it names containers"
    )
    return check.warning(str(options.path), observed, f"check that {_WRITER} runs on this node")


def _boot_s(proc: Path) -> int | None:
    """Return the start time of the node, in seconds of Unix time; see proc_stat(5)."""
    try:
        lines = (proc / "stat").read_text(encoding="ascii").splitlines()
        return next(int(line[len(_BOOT) :]) for line in lines if line.startswith(_BOOT))
    except (OSError, ValueError, StopIteration):
        return None
