"""Complete the cluster: DaemonSets get pods, and pods reach the API server."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.service import NODE_ADDRESS, forwarded, with_address
from tests.e2e.processes import wait_until

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
"""Numbers of capabilities that root often lacks in a container."""


def missing_rights() -> str:
    """Return which capabilities for mounts, networks and chroots are missing; empty if none."""
    status = Path("/proc/self/status").read_text()
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    held = int(effective, 16)
    lacks = [name for name, number in _CAPABILITIES.items() if not held >> number & 1]
    return f"no {', '.join(lacks)} here" if lacks else ""


@contextmanager
def full_cluster(cluster: Cluster, *, reachable: bool = False) -> Iterator[None]:
    """Complete a cluster for a while; most tests are more stable without controllers.

    Args:
        reachable: whether the API server can reach the kubelet, for `kubectl logs`, `exec` and
        `port-forward`.
    """
    server, kubelet = cluster.apiserver, cluster.kubelet
    with ExitStack() as ends:
        ends.callback(_restart, cluster)
        ends.callback(setattr, server, "accounts", False)
        server.accounts = True
        if reachable:
            ends.enter_context(with_address(NODE_ADDRESS))
            ends.callback(setattr, kubelet, "address", "")
            kubelet.address = NODE_ADDRESS
        _restart(cluster)
        ends.enter_context(forwarded(server.port))
        ends.callback(cluster.controllers.stop)
        cluster.controllers.start()
        cluster.ensure_scheduler()
        if reachable:
            wait_until(lambda: _known(cluster), f"the node has the address {NODE_ADDRESS}")
        cluster.wait_node_ready()
        yield


def _restart(cluster: Cluster) -> None:
    cluster.apiserver.restart()
    # A kubelet waits longer after each lost connection, up to half a minute.
    cluster.kubelet.restart()


def _known(cluster: Cluster) -> bool:
    found = cluster.api.get("Node", cluster.node)["status"].get("addresses", [])
    return {"type": "InternalIP", "address": NODE_ADDRESS} in found
