"""Where distributions of Kubernetes have the kubelet's root."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOTS: Final[Sequence[tuple[str, str]]] = (
    ("var/lib/kubelet", "kubeadm, k3s, RKE2 and most others"),
    ("var/lib/k0s/kubelet", "k0s"),
    ("var/snap/microk8s/common/var/lib/kubelet", "MicroK8s"),
)
"""The root, below that of the host, and whose it is."""


def other_roots(path: Path) -> str:
    """Return, for people, which roots a path is not in.

    A container sees what is mounted, so that a kubelet of another root can't be found from there:
    it is named instead.
    """
    others = (f"/{root} of {whose}" for root, whose in ROOTS if Path("/", root) not in path.parents)
    return f"--root-dir; {', '.join(others)}"
