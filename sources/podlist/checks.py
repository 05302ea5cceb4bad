"""The checks of the podlist source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import BOTH, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "podlist.file",
        "podlist.json",
        "it is missing, malformed, from the future, or stale: its writer has stopped, or a mount "
        "of the file shows an old version",
        "check that its writer runs; mount the folder instead of the file; fix the entries that "
        "are listed",
        BOTH,
        skips=False,
    ),
)
