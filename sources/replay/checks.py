"""The checks of the replay source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "replay.recording",
        "the recording's file",
        "it does not exist or is not a recording",
        "give the path of a file that `podgpu record` wrote, or `builtin:demo`",
        FAILS,
        skips=False,
    ),
)
