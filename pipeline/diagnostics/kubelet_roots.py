"""The kubelet's root folder in each distribution of Kubernetes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOTS: Final[Sequence[tuple[str, str]]] = (
    ("var/lib/kubelet", "kubeadm, k3s, RKE2 and most others"),
    ("var/lib/k0s/kubelet", "k0s"),
    ("var/snap/microk8s/common/var/lib/kubelet", "MicroK8s"),
)
"""Root folder, relative to the root of the host, and the distributions that use it."""


def other_roots(path: Path) -> str:
    """Return the known root folders that do not contain a path, for people.

    A container sees only what is mounted, so a kubelet with another root cannot be found from
    there. The message lists the possible roots instead.
    """
    others = (f"/{root} of {users}" for root, users in ROOTS if Path("/", root) not in path.parents)
    return f"--root-dir; {', '.join(others)}"
