"""The scheduler, for pods with claims or with several possible nodes."""

import http.client
import json
import ssl
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.kube import folders
from tests.e2e.kube.api import Object
from tests.e2e.kube.apiserver import ApiServer
from tests.e2e.kube.daemon import Daemon
from tests.e2e.peers import Peers
from tests.e2e.processes import free_ports


class Scheduler(Daemon):
    name = "kube-scheduler"

    def __init__(self, peers: Peers, server: ApiServer) -> None:
        super().__init__()
        self._program = peers.scheduler
        self._server = server
        (self._port,) = free_ports(1)
        self.extenders: Sequence[Object] = ()
        """Entries of `extenders` in its configuration from the next start on."""

    def command(self) -> list[str | Path]:
        kubeconfig = self._server.kubeconfig("scheduler")
        config = folders.CERTS / "scheduler-configuration.json"
        config.write_text(json.dumps(self._config(kubeconfig)))
        return [
            self._program,
            f"--config={config}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
        ]

    def _config(self, kubeconfig: Path) -> Object:
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "extenders": list(self.extenders),
        }

    def ready(self) -> bool:
        # Its certificate is self-signed and new at each start.
        unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=5, context=unchecked
        )
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
