"""A cluster as people install into: DaemonSets get pods, and pods find the API server."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.service import forwarded

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
"""Numbers of those that a machine's root has and a container's mostly hasn't."""


def missing_rights() -> str:
    """Return what mounting, networks and chroots lack here; empty if nothing."""
    status = Path("/proc/self/status").read_text()
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    held = int(effective, 16)
    lacks = [name for name, number in _CAPABILITIES.items() if not held >> number & 1]
    return f"no {', '.join(lacks)} here" if lacks else ""


@contextmanager
def whole(cluster: Cluster) -> Iterator[None]:
    """Complete a cluster for a while: most tests stand better without what acts by itself."""
    server = cluster.apiserver
    with ExitStack() as ends:
        ends.callback(server.restart)
        ends.callback(setattr, server, "accounts", False)
        server.accounts = True
        server.restart()
        ends.enter_context(forwarded(server.port))
        ends.callback(cluster.controllers.stop)
        cluster.controllers.start()
        cluster.ensure_scheduler()
        cluster.wait_node_ready()
        yield
