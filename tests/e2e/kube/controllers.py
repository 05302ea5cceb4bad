"""The controller manager, for what a test wants made of a DaemonSet, a namespace or an account."""

from pathlib import Path

from tests.e2e.kube import folders
from tests.e2e.kube.apiserver import ApiServer, signing_key
from tests.e2e.kube.daemon import Daemon
from tests.e2e.peers import Peers


class Controllers(Daemon):
    """All controllers that it starts by itself."""

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
            # Nobody asks it anything.
            "--secure-port=0",
        ]

    def ready(self) -> bool:
        """What pods can't be without has been made for those of the namespace `default`."""
        api = self._server.api
        made = {"ServiceAccount": "default", "ConfigMap": "kube-root-ca.crt"}
        return all(api.find(kind, name, "default") for kind, name in made.items())
