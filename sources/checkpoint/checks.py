"""The checks of the checkpoint source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import BOTH, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "checkpoint.file",
        "the kubelet's checkpoint of device plugins",
        "it is missing, not mounted, not readable, or has an unknown format",
        "mount the folder `device-plugins` of the kubelet's root, and set `path` if the kubelet "
        "has another root",
        BOTH,
        skips=False,
    ),
)
