"""The scheduler, for what can't just name its node: a pod with claims."""

import http.client
import ssl
from pathlib import Path

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

    def command(self) -> list[str | Path]:
        config = self._server.kubeconfig("scheduler")
        return [
            self._program,
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
        ]

    def ready(self) -> bool:
        # Its certificate is its own and of this start alone.
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
