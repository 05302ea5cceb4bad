"""The checks of the pods source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import BOTH, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "pods.server",
        "the API server, by a request for one pod of this node",
        "it cannot be reached, it does not accept the credentials (token expired), or it fails",
        "check that the address is correct and that a NetworkPolicy allows podgpu; renew the token "
        "or the kubeconfig; read the server's log",
        BOTH,
        skips=False,
    ),
    Check(
        "pods.rbac",
        "the source's permissions: list and watch of pods by requests; of ResourceSlices, and get "
        "of ResourceClaims, by access reviews",
        "a permission is missing",
        "give the service account a ClusterRole with that verb",
        BOTH,
        skips=False,
    ),
)
