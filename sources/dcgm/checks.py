"""The checks of the dcgm source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "dcgm.page",
        "the metrics page of dcgm-exporter, read once",
        "it cannot be read, it has no DCGM metric, or it is podgpu's own page",
        "check that dcgm-exporter runs on this node, and that `url` or `path` names its page",
        FAILS,
        skips=False,
    ),
)
