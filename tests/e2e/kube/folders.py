"""Paths of the cluster's files.

They are constant, so that a later run can remove the files of a killed run, and short, because the
path of a socket has at most 107 characters.
"""

from pathlib import Path

STATE = Path("/var/lib/podgpu-e2e")
"""Everything except logs and the kubelet's fixed folders."""

LOCK = Path("/run/podgpu-e2e.lock")
"""Locked while the cluster runs."""

LOGS = Path(__file__).resolve().parents[3] / "build" / "e2e" / "logs"
"""Logs of the programs, which are kept after the stop."""

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
"""The kubelet uses this folder independently of its root folder."""

CHECKPOINT = DEVICE_PLUGINS / "kubelet_internal_checkpoint"

_OURS = (RUN, CONTAINERD, CDI, CNI, ETCD, CERTS, KUBELET, STATIC_PODS, POD_LOGS)


def make() -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    for folder in _OURS:
        folder.mkdir(parents=True, exist_ok=True)
