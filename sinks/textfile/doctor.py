"""Checks of `podgpu doctor` for the sink `textfile`: the folder of the file."""

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.file_access import check_writable
from sinks.textfile.options import Options


def examine(options: Options, _ctx: DoctorContext) -> Finding:
    """Check `textfile.folder`."""
    return check_writable(Check("textfile.folder", FAILS), options.path, replaces=True)
