"""The checks of `podgpu doctor` for the kernel source: the log, and the processes that it names."""

from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.findings import FAILS, WARNS, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.host.procfs import ROOT
from sources.kernel import log_records, process_owners
from sources.kernel.kmsg_device import NO_LOG, Log
from sources.kernel.options import Options

_DEFAULT: Final = Options()


def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `kernel.log` and `kernel.processes`."""
    return [_log(options, ctx), _processes(options, ctx)]


def _log(options: Options, ctx: DoctorContext) -> Finding:
    check = Check("kernel.log", FAILS)
    path = options.path
    if path == _DEFAULT.path:
        path = ctx.roots.dev / path.name
    try:
        with Log(path) as log:
            data = log.read()
    except TransientError as error:
        observed, _, fix = str(error).partition("; ")
        return check.failure(str(path), observed.removeprefix(f"{path}: "), fix)
    if data is None:
        return check.ok(str(path), "can be read; it is empty")
    record = log_records.record(data)
    if record is None:
        return check.failure(str(path), "its data is not a kernel log", NO_LOG)
    return check.ok(str(path), f"can be read, from record {record.number} on")


def _processes(options: Options, ctx: DoctorContext) -> Finding:
    check = Check("kernel.processes", WARNS)
    chosen = options.proc != ROOT
    root = options.proc if chosen else ctx.roots.proc
    reason = process_owners.hidden_reason(root, is_configured=chosen)
    if not reason:
        return check.ok(str(root), "the processes of the host")
    observed = f"{reason}: podgpu cannot find the containers of processes in the log"
    return check.warning(str(root), observed, process_owners.FIX)
