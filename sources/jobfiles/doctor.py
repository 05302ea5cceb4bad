"""The check of `podgpu doctor` for the source `jobfiles`."""

from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.files.bounded_read import AbsentError, UnreadableError
from sources.jobfiles.job_folder import read_folder
from sources.jobfiles.options import Options
from sources.jobfiles.source import ABSENT

_FIX = "let podgpu's user read the folder and its files"


def examine(options: Options, _ctx: DoctorContext) -> Finding:
    """Return the finding of the check `jobfiles.folder`."""
    check, place = Check("jobfiles.folder", BOTH), str(options.path)
    try:
        found = read_folder(options.path)
    except UnreadableError as error:
        return check.failure(place, str(error), ABSENT if isinstance(error, AbsentError) else _FIX)
    if found.problems:
        return check.warning(place, found.problems[0], _FIX)
    return check.ok(place, f"lists the jobs of {len(found.devices)} devices")
