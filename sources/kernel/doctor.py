"""What `podgpu doctor` looks at for the kernel source: the log, and whose processes can be told."""

from functools import partial
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.host.procfs import ROOT
from sources.kernel import log_records, process_owners
from sources.kernel.kmsg_device import NO_LOG, Log
from sources.kernel.options import Options

_DEFAULT: Final = Options()


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `kernel.log` and `kernel.processes`."""
    return await in_thread(partial(_look, options, ctx))


def _look(options: Options, ctx: DoctorContext) -> list[Finding]:
    return [_log(options, ctx), _processes(options, ctx)]


def _log(options: Options, ctx: DoctorContext) -> Finding:
    check = CHECKS["kernel.log"]
    path = options.path
    if path == _DEFAULT.path:
        path = ctx.roots.dev / path.name
    try:
        with Log(path) as log:
            data = log.read()
    except TransientError as error:
        saw, _, mend = str(error).partition("; ")
        return check.failure(str(path), saw.removeprefix(f"{path}: "), mend)
    if data is None:
        return check.ok(str(path), "can be read; there is nothing in it")
    record = log_records.record(data)
    if record is None:
        return check.failure(str(path), "what it gives is no kernel's log", NO_LOG)
    return check.ok(str(path), f"can be read, from record {record.number} on")


def _processes(options: Options, ctx: DoctorContext) -> Finding:
    check = CHECKS["kernel.processes"]
    chosen = options.proc != ROOT
    root = options.proc if chosen else ctx.roots.proc
    why = process_owners.hidden_reason(root, is_configured=chosen)
    if not why:
        return check.ok(str(root), "the processes of the host")
    return check.warning(
        str(root), f"{why}: whose processes the log names isn't known", process_owners.FIX
    )
