"""The declaration of the source `jobfiles`."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="reads which jobs of a batch system use each GPU, for the label hpc_job",
    options="sources.jobfiles.options:Options",
    factory="sources.jobfiles.source:JobFilesSource",
    doctor="sources.jobfiles.doctor:examine",
    timeout_fix=HANGING_FILE,
)
