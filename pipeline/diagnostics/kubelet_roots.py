"""The kubelet's root folder in each distribution of Kubernetes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOTS: Final[Sequence[tuple[str, str]]] = (
    ("var/lib/kubelet", "kubeadm, k3s, RKE2 and most others"),
    ("var/lib/k0s/kubelet", "k0s"),
    ("var/snap/microk8s/common/var/lib/kubelet", "MicroK8s"),
)
"""Root folders, relative to the root of the host, each with the distributions that use it."""

IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
"""Environment variable that each container of a pod has."""


def other_roots(path: Path) -> str:
    """Return a text for people: the known root folders of the kubelet that do not contain a path.

    A container sees only the folders that are mounted, so it cannot find the kubelet's root folder.
    """
    others = (f"/{root} of {users}" for root, users in ROOTS if Path("/", root) not in path.parents)
    return f"--root-dir; {', '.join(others)}"
