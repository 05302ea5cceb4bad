"""The controller manager, for tests with DaemonSets, namespaces or service accounts."""

from pathlib import Path

from tests.e2e.kube import folders
from tests.e2e.kube.apiserver import ApiServer, signing_key
from tests.e2e.kube.daemon import Daemon
from tests.e2e.peers import Peers


class Controllers(Daemon):
    """The controller manager with its default controllers."""

    name = "kube-controller-manager"

    def __init__(self, peers: Peers, server: ApiServer) -> None:
        super().__init__()
        self._program = peers.controllers
        self._server = server

    def command(self) -> list[str | Path]:
        return [
            self._program,
            f"--kubeconfig={self._server.kubeconfig('controllers')}",
            f"--service-account-private-key-file={signing_key()}",
            f"--root-ca-file={folders.CERTS / 'apiserver.crt'}",
            "--leader-elect=false",
            # No program sends requests to it.
            "--secure-port=0",
        ]

    def ready(self) -> bool:
        """Return whether the objects that each pod needs exist in the namespace `default`."""
        api = self._server.api
        made = {"ServiceAccount": "default", "ConfigMap": "kube-root-ca.crt"}
        return all(api.find(kind, name, "default") for kind, name in made.items())
