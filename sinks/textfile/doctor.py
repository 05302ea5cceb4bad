"""Checks of `podgpu doctor` for the sink `textfile`: the folder of the file."""

from functools import partial

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.write_access import check_writable
from sinks.textfile.options import Options


async def examine(options: Options, _ctx: DoctorContext) -> list[Finding]:
    """Check `textfile.folder`."""
    check = Check("textfile.folder", FAILS)
    return [await in_thread(partial(check_writable, check, options.path, replaces=True))]
