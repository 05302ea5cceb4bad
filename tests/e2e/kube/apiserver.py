"""The API server and its built-in users."""

import secrets
import ssl
from pathlib import Path

from tests.e2e.kube import folders
from tests.e2e.kube.access import kubeconfig
from tests.e2e.kube.api import Api, ApiError
from tests.e2e.kube.daemon import Daemon
from tests.e2e.kube.etcd import Etcd
from tests.e2e.peers import Peers
from tests.e2e.processes import free_ports

NODE = "node1"

_USERS = {
    "admin": ("admin", "system:masters"),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    # Its rights come with the server, as the node's do.
    "scheduler": ("system:kube-scheduler", ""),
    # In a production cluster each controller has a separate account.
    "controllers": ("system:kube-controller-manager", "system:masters"),
}
"""User name and group by token."""


class ApiServer(Daemon):
    """The API server, which keeps its port and certificate over restarts."""

    name = "kube-apiserver"

    def __init__(self, peers: Peers, etcd: Etcd) -> None:
        super().__init__()
        self._program = peers.apiserver
        self._etcd = etcd
        (self.port,) = free_ports(1)
        self.accounts = False
        """Whether pods get service accounts and tokens from the next start on."""

    @property
    def api(self) -> Api:
        """Access as a user with all permissions."""
        return self._as("admin")

    def kubeconfig(self, user: str) -> Path:
        """Write the kubeconfig of a built-in user, and return its path."""
        return kubeconfig(folders.CERTS / f"{user}.yaml", self._as(user))

    def _as(self, user: str) -> Api:
        return Api(self.port, folders.CERTS / "apiserver.crt", user)

    def command(self) -> list[str | Path]:
        tokens = folders.CERTS / "tokens.csv"
        tokens.write_text(
            "".join(f'{word},{name},{name},"{group}"\n' for word, (name, group) in _USERS.items())
        )
        return [
            self._program,
            f"--etcd-servers={self._etcd.url}",
            f"--cert-dir={folders.CERTS}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={signing_key()}",
            f"--service-account-signing-key-file={signing_key()}",
            # The plugin needs objects of a controller, which usually does not run here.
            f"--{'enable' if self.accounts else 'disable'}-admission-plugins=ServiceAccount",
            # By default it connects to the kubelet by the node name, which cannot be resolved.
            "--kubelet-preferred-address-types=InternalIP",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--allow-privileged",
            # Without it, a stop waits a minute for watches.
            "--shutdown-watch-termination-grace-period=1s",
        ]

    def ready(self) -> bool:
        try:
            self.api.request("GET", "/readyz")
        except (OSError, ApiError):
            return False
        return True


def signing_key() -> Path:
    """Return the file of a private key on the curve P-256, in the format of RFC 5915."""
    key = folders.CERTS / "sa.key"
    if not key.exists():
        curve = bytes.fromhex("a00a06082a8648ce3d030107")
        der = bytes.fromhex("30310201010420") + secrets.token_bytes(32) + curve
        key.write_text(ssl.DER_cert_to_PEM_cert(der).replace("CERTIFICATE", "EC PRIVATE KEY"))
    return key
