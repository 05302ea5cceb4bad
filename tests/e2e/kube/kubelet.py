"""The kubelet, with an API server or standalone with static pods."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.kube import folders
from tests.e2e.kube.apiserver import NODE, ApiServer
from tests.e2e.kube.daemon import Daemon
from tests.e2e.peers import Peers
from tests.e2e.processes import free_ports, get

_NOTHING_IS_EVICTED = {
    "memory.available": "0%",
    "nodefs.available": "0%",
    "nodefs.inodesFree": "0%",
    "imagefs.available": "0%",
    "imagefs.inodesFree": "0%",
}


class Kubelet(Daemon):
    name = "kubelet"

    def __init__(self, peers: Peers, server: ApiServer | None) -> None:
        super().__init__()
        self._program = peers.kubelet
        self._server = server
        self.port, self.health_port = free_ports(2)
        self.address = ""
        """Address for the API server from the next start on; empty if it is not reachable."""
        self.more: dict[str, Any] = {}
        """Further configuration from the next start on, such as `topologyManagerPolicy`...."""

    def command(self) -> list[str | Path]:
        config = folders.KUBELET / "config.json"
        config.write_text(json.dumps({**self._config(), **self.more}))
        command: list[str | Path] = [
            self._program,
            f"--config={config}",
            f"--root-dir={folders.KUBELET}",
            f"--cert-dir={folders.KUBELET / 'pki'}",
            f"--hostname-override={NODE}",
        ]
        if self._server is not None:
            command.append(f"--kubeconfig={self._server.kubeconfig('kubelet')}")
        if self.address:
            command.append(f"--node-ip={self.address}")
        return command

    def _config(self) -> Mapping[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{folders.CRI_SOCKET}",
            "staticPodPath": str(folders.STATIC_PODS),
            "fileCheckFrequency": "1s",
            "podLogsDir": str(folders.POD_LOGS),
            "volumePluginDir": str(folders.KUBELET / "volume-plugins"),
            "address": self.address or "127.0.0.1",
            "port": self.port,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self.health_port,
            "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            # Both cgroup versions are supported.
            "failCgroupV1": False,
            "failSwapOn": False,
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "enableControllerAttachDetach": False,
            "evictionHard": _NOTHING_IS_EVICTED,
            "imageGCHighThresholdPercent": 100,
            # Short, because tests wait for them.
            "nodeStatusUpdateFrequency": "1s",
            "syncFrequency": "2s",
        }

    def ready(self) -> bool:
        """Return whether it is healthy; before, plugins cannot register."""
        try:
            healthy = get(self.health_port, "/healthz").status == 200
        except OSError:
            return False
        return healthy and folders.POD_RESOURCES_SOCKET.exists()
