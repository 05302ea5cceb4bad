"""Options of the source `pods` for the contract tests."""

from functools import cache
from itertools import count
from pathlib import Path

from sources.pods.options import Options
from tests.sources.pods.pod_objects import raw_pod
from tests.support.kube import ApiServer, Collection, ThreadedApiServer


@cache
def _api_server() -> ThreadedApiServer:
    """Return an API server whose only pod changes continuously."""
    pods, number = "/api/v1/pods", count()

    def change(server: ApiServer) -> None:
        server.paths[pods].put(raw_pod(status={"qosClass": str(next(number))}))

    return ThreadedApiServer(lambda: ApiServer({pods: Collection()}), change)


def options(folder: Path) -> Options:
    return Options(kubeconfig=_api_server().server.kubeconfig(folder / "kubeconfig"))
