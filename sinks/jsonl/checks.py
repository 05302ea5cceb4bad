"""The checks of the jsonl sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, WRITABLE_FOLDER, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "jsonl.file",
        "the file of JSON lines, and its folder",
        "it is not writable",
        f'{WRITABLE_FOLDER}; or write `path: "-"` for standard output',
        FAILS,
        skips=False,
    ),
)
