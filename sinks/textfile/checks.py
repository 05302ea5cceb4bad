"""The checks of the textfile sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, WRITABLE_FOLDER, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "textfile.folder",
        "the folder of the `.prom` file",
        "it does not exist or is not writable",
        f"{WRITABLE_FOLDER}: the one of node_exporter's `--collector.textfile.directory`",
        FAILS,
        skips=False,
    ),
)
