"""A process of `podgpu extender`, and the scheduler's decision for a pod."""

import http.client
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.documented import extender
from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.kube.service import Place
from tests.e2e.node import PODGPU
from tests.e2e.podgpu import Program
from tests.e2e.processes import wait_until

PAGE = "extender.md"
REQUIRE = "podgpu.io/require"


class Extender(Program):
    """`podgpu extender`.

    Args:
        folder: folder to create.
        kubeconfig: credentials for watching Nodes.
    """

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        folder.mkdir()
        super().__init__(folder)
        self._kubeconfig = kubeconfig

    def command(self) -> list[str | Path]:
        listen = f"127.0.0.1:{self.port}"
        return [PODGPU, "extender", "--listen", listen, "--kubeconfig", self._kubeconfig]

    def entry(self, **changes: object) -> Object:
        """Return the documented scheduler configuration entry, with this process' port."""
        return {**extender(PAGE), "urlPrefix": f"http://127.0.0.1:{self.port}", **changes}

    def wait_nodes(self, **wanted: int) -> None:
        """Wait until it has this many nodes in each of these states."""

        def known() -> bool:
            found = self.of("podgpu_extender_nodes")
            counts = {labels["state"]: value for labels, value in found}
            return all(counts[state] == count for state, count in wanted.items())

        wait_until(known, f"the extender knows of {wanted}")

    def asked(self, verb: str) -> float:
        """Return the number of requests that it answered successfully."""
        return self.value("podgpu_extender_requests_total", verb=verb, result="ok") or 0


def question(place: Place, verb: str, gpus: int, names: Sequence[str]) -> Any:
    """Send a request to an extender as the scheduler does; assert status 200 and return the
    response.

    Args:
        place: address of the extender.
        verb: `filter` or `prioritize`.
        gpus: number of GPUs that the pod requests.
        names: names of the candidate nodes.
    """
    connection = http.client.HTTPConnection(*place, timeout=10)
    try:
        asked = {"Pod": gpu_pod("asked", gpus), "NodeNames": list(names)}
        connection.request("POST", f"/{verb}", json.dumps(asked))
        answer = connection.getresponse()
        output = answer.read().decode()
    finally:
        connection.close()
    assert answer.status == 200, output
    return json.loads(output)


def wait_bound(kube: Cluster, name: str, seconds: float = 30) -> str:
    """Wait until the scheduler has bound a pod, and return the node."""
    try:
        return wait_until(lambda: bound(kube, name), f"{name} has a node", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}: {turned_away(kube, name)}") from None


def bound(kube: Cluster, name: str) -> str:
    node: str = kube.api.pod(name)["spec"].get("nodeName", "")
    return node


def turned_away(kube: Cluster, name: str) -> str:
    """Return why the scheduler found no node for a pod; empty while this is unknown."""
    for condition in kube.api.pod(name)["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message: str = condition["message"]
            return message
    return ""


def wait_turned_away(kube: Cluster, name: str, *words: str) -> None:
    """Wait until the scheduler reports that it found no node, with these texts."""
    try:
        wait_until(lambda: all(word in turned_away(kube, name) for word in words), f"{name} waits")
    except AssertionError as error:
        raise AssertionError(f"{error}: {turned_away(kube, name)!r}") from None
    assert not bound(kube, name)
