"""Install podgpu on the node with its chart, like `helm template | kubectl apply`."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce

from pipeline.topology.node_annotation import KEY
from tests.deploy.manifests import Manifests, Object
from tests.e2e.charts import Values
from tests.e2e.helm import NAMESPACE, Helm
from tests.e2e.image import REFERENCE
from tests.e2e.image_pods import execute
from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.full_cluster import full_cluster
from tests.e2e.kubectl_apply import ObjectApplier
from tests.e2e.processes import wait_until
from tests.fakes.nvml import FakeNvml

MONITORED = "monitoring.coreos.com/v1/ServiceMonitor"
_PLAYED = "/opt/played"
_LABEL = "nvidia.com/gpu.present"
"""The label that GPU feature discovery sets on a node with GPUs."""


def values(fake: FakeNvml, *more: Values) -> Values:
    """Return values for the simulated node, merged with further values."""
    name, _, tag = REFERENCE.rpartition(":")
    ours: Values = {
        "image": {"repository": name, "tag": tag, "pullPolicy": "Never"},
        # There is no container toolkit, so the library is mounted.
        "driverRoot": str(fake.library_folder),
        "driverLibrary": "/libnvidia-ml.so.1",
        "extraEnv": [{"name": "FAKENVML_SCENARIO", "value": f"{_PLAYED}/{fake.path.name}"}],
        "extraHostVolumes": [{"name": "played", "hostPath": str(fake.path.parent)}],
        "extraVolumeMounts": [{"name": "played", "mountPath": _PLAYED, "readOnly": True}],
        "kubeletPath": str(Cluster.pod_resources_socket.parent),
        # Short, because only updates need a longer time.
        "minReadySeconds": 1,
        "config": {"sources": {"gpus": {"interval": "500ms", "slow_interval": "1s"}}},
    }
    return reduce(merged, more, ours)


def merged(below: Values, above: Values) -> Values:
    """Merge values into others as helm does."""
    found = dict(below)
    for key, value in above.items():
        had = found.get(key)
        both = isinstance(value, dict) and isinstance(had, dict)
        found[key] = merged(had, value) if both and isinstance(had, dict) else value
    return found


@dataclass
class Installation:
    """A release of the chart, with the objects that were applied last."""

    kube: Cluster
    helm: Helm
    applying: ObjectApplier
    values: Values
    made: Manifests
    there: bool = True

    def remove(self) -> None:
        """Uninstall it, unless that was done."""
        if self.there:
            self.applying.delete(self.made.objects)
            self.there = False

    def update(self, *more: Values) -> None:
        """Apply the chart with further values, without waiting."""
        self.values = reduce(merged, more, self.values)
        self.made = rendered(self.helm, self.values)
        self.applying.apply(self.made.objects)

    def wait(self) -> None:
        """Wait until every pod is up to date and available."""
        wait_until(self._done, "the rollout", seconds=90, every=0.2)

    def _done(self) -> bool:
        found = self.daemonset()
        status, wanted = found["status"], 1
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status["desiredNumberScheduled"] == wanted
            and status.get("updatedNumberScheduled", 0) == wanted
            and status.get("numberAvailable", 0) == wanted
            and len(self.pods()) == wanted
        )

    def daemonset(self) -> Object:
        where = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/podgpu"
        found: Object = self.kube.api.request("GET", where)
        return found

    def pods(self) -> list[Object]:
        """Return the DaemonSet's pods."""
        return self._chosen(self.made.one("DaemonSet"))

    def extenders(self) -> list[Object]:
        """Return the pods of the scheduler extender."""
        return self._chosen(self.made.one("Deployment"))

    def _chosen(self, by: Object) -> list[Object]:
        labels = by["spec"]["selector"]["matchLabels"].items()
        selector = ",".join(f"{key}={value}" for key, value in labels)
        return self.kube.api.list("Pod", NAMESPACE, labelSelector=selector)

    def endpoint(self) -> Object:
        """Return the endpoint of the ServiceMonitor."""
        made = rendered(self.helm, self.values, "--api-versions", MONITORED)
        (found,) = made.one("ServiceMonitor")["spec"]["endpoints"]
        endpoint: Object = found
        return endpoint

    def log(self) -> str:
        name = self.pods()[0]["metadata"]["name"]
        return self.kube.pod_log(name, "podgpu", NAMESPACE)

    def diagnosis(self) -> list[Mapping[str, str]]:
        """Return the findings of `podgpu doctor`, run in the pod."""
        (made,) = self.pods()
        command = ("podgpu", "doctor", "-c", "/etc/podgpu/config.yaml", "--json")
        done = execute(self.kube, made, *command)
        assert done.stdout, done.stderr
        found: list[Mapping[str, str]] = json.loads(done.stdout)["findings"]
        return found


@contextmanager
def prepared_site(cluster: Cluster, *, reachable: bool = False) -> Iterator[None]:
    """Complete the cluster for a while, with a GPU label on its node and without podgpu."""
    access.remove_namespace(cluster.api, NAMESPACE)
    with full_cluster(cluster, reachable=reachable), ExitStack() as ends:
        ends.callback(cluster.tidy)
        # The sink `node` keeps its annotation by default.
        cluster.api.patch("Node", cluster.node, {"metadata": {"annotations": {KEY: None}}})
        ends.callback(_label, cluster, None)
        _label(cluster, "true")
        yield


def _label(cluster: Cluster, value: str | None) -> None:
    cluster.api.patch("Node", cluster.node, {"metadata": {"labels": {_LABEL: value}}})


def rendered(helm: Helm, how: Values, *more: str) -> Manifests:
    return helm.template(how, "--set", "createNamespace=true", *more)


@contextmanager
def installed(kube: Cluster, helm: Helm, how: Values) -> Iterator[Installation]:
    """Install podgpu, wait until it runs, and uninstall it at the end."""
    applying = ObjectApplier(kube.api)
    release = Installation(kube, helm, applying, how, rendered(helm, how))
    try:
        applying.apply(release.made.objects)
        release.wait()
        yield release
    finally:
        release.remove()
