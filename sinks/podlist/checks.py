"""The checks of the podlist sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import BOTH, WRITABLE_FOLDER, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "podlist.target",
        "the podlist.json that is written, and its folder",
        "it is not writable, or it is a mount, which cannot be replaced",
        f"{WRITABLE_FOLDER}; `write: inplace` for a file that is mounted by itself",
        BOTH,
        skips=False,
    ),
)
