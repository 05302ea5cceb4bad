"""The checks of the pods sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "pods.patch",
        "the pods sink's permissions on pods, by access reviews; nothing is changed",
        "a permission is missing, or the API server cannot be reached",
        "give the service account a ClusterRole with `get` and `patch` on pods",
        FAILS,
        skips=False,
    ),
)
