"""What `podgpu doctor` looks at for the textfile sink: the folder."""

from functools import partial

from pipeline.doctor.checks import CHECKS
from pipeline.doctor.context import DoctorContext, in_thread
from pipeline.doctor.findings import Finding
from pipeline.doctor.writing import look
from sinks.textfile.options import Options


async def examine(options: Options, _ctx: DoctorContext) -> list[Finding]:
    """Check `textfile.folder`."""
    check = CHECKS["textfile.folder"]
    return [await in_thread(partial(look, check, options.path, replaces=True))]
