"""Where the node keeps what it has.

Always in the same place: a run that was killed can only be cleared away by one that knows where it
was. And near the root, because the path of a socket has no more than 107 characters.
"""

from pathlib import Path

STATE = Path("/var/lib/podgpu-e2e")
"""Everything of the node but its logs and what the kubelet insists on."""

LOCK = Path("/run/podgpu-e2e.lock")
"""Held while the node is up."""

LOGS = Path(__file__).resolve().parents[3] / "build" / "e2e" / "logs"
"""What each program said; kept when the node is gone."""

RUN = STATE / "run"
CONTAINERD = STATE / "containerd"
CDI = STATE / "cdi"
CNI = STATE / "cni"
ETCD = STATE / "etcd"
CERTS = STATE / "certs"
KUBELET = STATE / "kubelet"
STATIC_PODS = STATE / "static-pods"
POD_LOGS = STATE / "pod-logs"

CRI_SOCKET = RUN / "containerd.sock"
NRI_SOCKET = RUN / "nri.sock"
POD_RESOURCES_SOCKET = KUBELET / "pod-resources" / "kubelet.sock"

DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""The kubelet uses this folder whatever its root is."""

CHECKPOINT = DEVICE_PLUGINS / "kubelet_internal_checkpoint"

_OURS = (RUN, CONTAINERD, CDI, CNI, ETCD, CERTS, KUBELET, STATIC_PODS, POD_LOGS)


def make() -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    for folder in _OURS:
        folder.mkdir(parents=True, exist_ok=True)
