"""The check of `podgpu doctor` for the source `replay`: whether the recording is readable."""

import os

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.file_access import access_problem
from pipeline.recording import RecordingError, RecordingReader
from sources.replay.options import DEMO, Options, recording_path


def examine(options: Options, _ctx: DoctorContext) -> Finding:
    """Run the check `replay.recording`: read the header and the first event."""
    check = Check("replay.recording", FAILS)
    path = recording_path(options.path)
    fix = (
        "reinstall podgpu: the recording is part of the installation"
        if options.path == DEMO
        else f"give the path of a file that podgpu record wrote, or {DEMO}"
    )
    if problem := access_problem(path):
        return check.failure(options.path, problem, fix)
    try:
        with RecordingReader(path) as reader:
            first = next(iter(reader), None)
            header = reader.header
    except RecordingError as error:
        return check.failure(options.path, str(error), fix)
    except OSError as error:
        problem = f"cannot be read: {os.strerror(error.errno or 0).lower()}"
        return check.failure(options.path, problem, fix)
    if first is None:
        return check.failure(options.path, "contains no events", fix)
    return check.ok(options.path, f"recorded on node {header.node} by podgpu {header.version}")
