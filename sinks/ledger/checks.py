"""The checks of the ledger sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import BOTH, WRITABLE_FOLDER, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "ledger.file",
        "the ledger's folder and file, and the process that has it open; the integrity of a small "
        "file",
        "it is not writable, another podgpu uses it, it is damaged, or its disk is too small",
        f"{WRITABLE_FOLDER}, on the node's own disk",
        BOTH,
        skips=False,
    ),
)
