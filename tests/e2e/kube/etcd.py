"""etcd, the store of the API server."""

from pathlib import Path

from tests.e2e.kube import folders
from tests.e2e.kube.daemon import Daemon
from tests.e2e.peers import Peers
from tests.e2e.processes import free_ports, get


class Etcd(Daemon):
    name = "etcd"

    def __init__(self, peers: Peers) -> None:
        super().__init__()
        self._program = peers.etcd
        self.port, self._peer_port = free_ports(2)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        peer = f"http://127.0.0.1:{self._peer_port}"
        return [
            self._program,
            f"--data-dir={folders.ETCD}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # The data need not survive a crash of the machine.
            "--unsafe-no-fsync",
        ]

    def ready(self) -> bool:
        try:
            return get(self.port, "/readyz").status == 200
        except OSError:
            return False
