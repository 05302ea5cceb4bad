"""The checks of the node sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "node.rbac",
        "the node sink's permissions on its Node: by a read, and by access reviews",
        "a permission is missing, or the API server cannot be reached",
        "give the service account a ClusterRole with `get` and `patch` on nodes",
        FAILS,
        skips=False,
    ),
)
