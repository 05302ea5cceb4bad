"""The checks of the nri source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "nri.socket",
        "the container runtime's NRI socket; podgpu doctor does not connect to it",
        "NRI is disabled in the runtime, nothing listens, its folder is not mounted, or podgpu "
        "does not run as root",
        "containerd 1.7: `disable = false` for NRI; CRI-O: `enable_nri = true`; mount "
        "`/var/run/nri`; run as root",
        FAILS,
    ),
)
