"""The checks of the events sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "events.rbac",
        "the events sink's permissions on Events, by access reviews; no Event is created",
        "a permission is missing, or the API server cannot be reached",
        "give the service account a ClusterRole with `create` and `patch` on events, or a Role in "
        "each of `namespaces`",
        FAILS,
        skips=False,
    ),
)
