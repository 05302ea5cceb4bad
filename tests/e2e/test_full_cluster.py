"""The cluster with controllers and reachable Services."""

import socket

from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.full_cluster import full_cluster
from tests.e2e.kube.images import IMAGE
from tests.e2e.kube.pods import HOLD, container, pod, run
from tests.e2e.kube.service import ADDRESS
from tests.e2e.kubectl_apply import ObjectApplier
from tests.e2e.processes import wait_until

NAMESPACE = "whole"
ASK = run(
    "nc -w 10 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached;"
    "test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token"
)


def asking(name: str) -> Object:
    """Return a pod without host network that prints whether it reaches the API server."""
    made = pod(name, container(command=ASK), restart="Never")
    made["spec"]["hostNetwork"] = False
    return made


def daemonset() -> list[Object]:
    labels = {"app": "held"}
    spec = {
        "containers": [
            {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": list(HOLD)}
        ]
    }
    meta = {"name": "held", "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    ]


def held() -> bool:
    """Return whether the machine has the address of the Service."""
    with socket.socket() as trial:
        try:
            trial.bind((ADDRESS, 0))
        except OSError:
            return False
    return True


def test_pods_reach_the_api_server_and_daemonsets_get_pods(kube: Cluster) -> None:
    with full_cluster(kube):
        kube.run(asking("within"), "Succeeded", "Failed")
        assert held()
        assert kube.pod_log("within") == "reached\ntoken\n"
        applying, objects = ObjectApplier(kube.api), daemonset()
        applying.apply(objects)

        def running() -> bool:
            phases = [each["status"]["phase"] for each in kube.api.list("Pod", NAMESPACE)]
            return phases == ["Running"]

        wait_until(running, "the DaemonSet's pod", every=0.2)
        # Deletion removes the pod, and the namespace with all of its objects.
        applying.delete(objects)
        assert kube.api.list("Pod", NAMESPACE) == []
    assert not held()
    kube.run(asking("after"), "Succeeded", "Failed")
    assert "token" not in kube.pod_log("after")
