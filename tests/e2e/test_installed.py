"""The image, installed by the chart on a real cluster: scrapes, updates, permissions, removal."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.manifests import Object
from tests.e2e.charts import Values
from tests.e2e.helm import Helm
from tests.e2e.image import REFERENCE, Image
from tests.e2e.image_pods import page
from tests.e2e.installation import Installation, installed, prepared_site, values
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.kubectl_apply import ObjectApplier
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.e2e.service_discovery import EVERY, ITSELF, JOB, DiscoveringPrometheus, discovering
from tests.fakes.nvml import FakeNvml

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]
UTIL = "DCGM_FI_DEV_GPU_UTIL"
COUNTERS = "gpu-metrics"

ALL: Values = {
    "preset": "runtime",
    "config": {
        "sources": {"runtime": {"socket": str(Cluster.nri_socket)}},
        "counters": {"configmap": f"default:{COUNTERS}"},
        "sinks": {
            "topology": {"kind": "node", "remove": "at_stop", "min_interval": "1s"},
            "annotations": {"kind": "pods"},
            "lines": {"kind": "jsonl"},
        },
    },
}
"""All components that use the API server or the node."""

TOPOLOGY = "podgpu.io/topology"

LONGER = 8
"""Seconds for which both pods run in an update: Prometheus needs five for a new target."""


@pytest.fixture(scope="module")
def site(loaded: Image, cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with controllers and a GPU label on its node, without podgpu."""
    with prepared_site(cluster):
        rows = "\n".join(f"{name}, gauge, Help." for name in (UTIL, "DCGM_FI_DEV_GPU_TEMP"))
        meta = {"name": COUNTERS, "namespace": "default"}
        cluster.api.create({"kind": "ConfigMap", "metadata": meta, "data": {"metrics": rows}})
        yield cluster
        cluster.api.delete("ConfigMap", COUNTERS, "default")


@pytest.fixture(scope="module")
def plugin(site: Cluster) -> DevicePlugin:
    return site.plugin(IDS)


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return FakeNvml(SCENE, tmp_path_factory.mktemp("played"))


def wait_holders(prometheus: DiscoveringPrometheus, expected: dict[str, str]) -> None:
    """Wait until Prometheus has exactly these pods by device, from all scraped podgpus."""

    def known() -> bool:
        found = prometheus.query(f'{UTIL}{{job="{JOB}"}}')
        held = {(each.labels["UUID"], each.labels.get("pod", "")) for each in found}
        return {(device, pod) for device, pod in held if pod} == set(expected.items())

    wait_until(known, f"{expected} in Prometheus", seconds=45)


def gap(prometheus: DiscoveringPrometheus, selector: str, since: float) -> float:
    """Return the longest time without a sample in any of the series, in seconds."""
    window = f"{time.time() - since:.0f}s"
    found = prometheus.query(f"{selector}[{window}]")
    times = sorted(at for series in found for at, _ in series.points)
    assert len(times) > 2
    return max(later - sooner for sooner, later in itertools.pairwise(times))


def test_scrapes_have_no_gap_while_pods_change_and_podgpu_is_updated(
    site: Cluster, helm: Helm, plugin: DevicePlugin, fake: FakeNvml, tmp_path: Path
) -> None:
    with (
        installed(site, helm, values(fake)) as release,
        discovering(
            tmp_path / "prometheus", site.api, release.made.one("Service"), release.endpoint()
        ) as prometheus,
    ):
        site.run(gpu_pod("train-0", 2))
        first = dict.fromkeys(plugin.asked[-1], "train-0")
        wait_holders(prometheus, first)
        site.run(gpu_pod("train-1", 1))
        second = dict.fromkeys(plugin.asked[-1], "train-1")
        wait_holders(prometheus, first | second)
        site.remove("train-0")
        wait_holders(prometheus, second)

        # Update the image and the configuration, and start a pod meanwhile.
        since = time.time()
        (before,) = release.pods()
        newer = "newer"
        site.containerd.tag(REFERENCE, f"{REFERENCE.rpartition(':')[0]}:{newer}")
        release.update(
            {
                "image": {"tag": newer},
                "config": {"log": {"level": "debug"}},
                "minReadySeconds": LONGER,
            }
        )
        site.run(gpu_pod("train-2", 1))
        third = dict.fromkeys(plugin.asked[-1], "train-2")
        wait_until(lambda: len(release.pods()) == 2, "two pods run", every=0.02)
        release.wait()
        (after,) = release.pods()
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["spec"]["containers"][0]["image"].endswith(f":{newer}")
        wait_holders(prometheus, second | third)

        temperature = f'DCGM_FI_DEV_GPU_TEMP{{job="{JOB}",UUID="{IDS[0]}"}}'
        scraped_by = {
            each.labels["instance"]
            for each in prometheus.query(f"{temperature}[{time.time() - since:.0f}s]")
        }
        assert len(scraped_by) == 2
        # Gaps in Prometheus' own series show that the machine was busy.
        busy = gap(prometheus, f'up{{job="{ITSELF}"}}', since)
        assert gap(prometheus, temperature, since) <= busy + EVERY
        for name in ("train-1", "train-2"):
            site.remove(name)


CHECKED = {
    ("pods", "list"): "pods.rbac",
    ("pods", "watch"): "pods.rbac",
    ("pods", "get"): "pods.patch",
    ("pods", "patch"): "pods.patch",
    ("resourceslices", "list"): "pods.rbac",
    ("resourceslices", "watch"): "pods.rbac",
    ("resourceclaims", "get"): "pods.rbac",
    ("nodes", "get"): "node.rbac",
    ("nodes", "patch"): "node.rbac",
    ("configmaps", "get"): "counters",
}
"""The check that fails without the permission, by resource and verb."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces of an installation.

    Attributes:
        objects: names of API objects.
        node: keys of annotations and labels of the Node.
        files: files in the node's folders that podgpu mounts.
    """

    objects: set[str]
    node: set[str]
    files: set[Path]


def traces(site: Cluster, fake: FakeNvml) -> Traces:
    folders = (
        site.pod_resources_socket.parent,
        site.device_plugins,
        fake.library_folder,
        fake.path.parent,
    )
    node = site.api.get("Node", site.node)["metadata"]
    return Traces(
        objects=ObjectApplier(site.api).everything(),
        node=node["annotations"].keys() | node["labels"].keys(),
        files={path for folder in folders for path in folder.rglob("*")},
    )


@pytest.fixture(scope="module")
def before(site: Cluster, plugin: DevicePlugin, fake: FakeNvml) -> Traces:
    return traces(site, fake)


@pytest.fixture(scope="module")
def granted(site: Cluster, helm: Helm, before: Traces, fake: FakeNvml) -> Iterator[Installation]:
    """podgpu with all components that use the API server, and the chart's rules."""
    with installed(site, helm, values(fake, ALL)) as release:
        yield release


def roles(release: Installation) -> list[Object]:
    return [each for each in release.made.objects if each["kind"] in {"ClusterRole", "Role"}]


def rights(release: Installation) -> set[tuple[str, str]]:
    return {
        (resource, verb)
        for role in roles(release)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_everything_works_with_the_rbac_rules_of_the_chart(
    granted: Installation, site: Cluster
) -> None:
    site.run(gpu_pod("train-0", 1))
    (made,) = granted.pods()

    def written() -> bool:
        annotations = site.api.get("Node", site.node)["metadata"]["annotations"]
        held = site.api.pod("train-0")["metadata"].get("annotations", {})
        return TOPOLOGY in annotations and "nvidia.com/gpu" in held

    wait_until(written, f"both annotations: {granted.log()[-3000:]}")
    wait_until(lambda: 'pod="train-0"' in page(made), "labels")
    lines = page(made).splitlines()
    states = [line for line in lines if line.startswith(("podgpu_source_up{", "podgpu_sink_up{"))]
    assert len(states) == 9
    assert [line for line in states if not line.endswith(" 1")] == []
    errors = [line for line in lines if line.startswith("podgpu_sink_errors_total{")]
    assert [line for line in errors if not line.endswith(" 0")] == []
    assert rights(granted) == CHECKED.keys()
    about = set(CHECKED.values()) | {"pods.server", "node.name"}
    found = [each for each in granted.diagnosis() if each["check"] in about]
    assert {each["check"] for each in found} == about
    assert [each for each in found if each["verdict"] != "ok"] == []
    site.remove("train-0")


@pytest.mark.parametrize(
    ("resource", "verb"), CHECKED, ids=[f"{verb} {resource}" for resource, verb in CHECKED]
)
def test_the_doctor_reports_each_missing_permission(
    granted: Installation, resource: str, verb: str
) -> None:
    for role in roles(granted):
        rules = [
            {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
            if resource in rule["resources"]
            else rule
            for rule in role["rules"]
        ]
        granted.applying.apply([{**role, "rules": [rule for rule in rules if rule["verbs"]]}])

    def named() -> bool:
        return any(
            each["check"] == CHECKED[resource, verb]
            and each["verdict"] in {"failure", "warning"}
            and verb in each["saw"]
            and resource in each["saw"]
            and each["mend"]
            for each in granted.diagnosis()
        )

    try:
        wait_until(named, f"{CHECKED[resource, verb]} names {verb} {resource}", every=0.5)
    finally:
        granted.applying.apply(roles(granted))


def test_uninstalling_leaves_nothing(
    granted: Installation, site: Cluster, before: Traces, fake: FakeNvml
) -> None:
    """This is the last test that needs this installation."""

    def annotated() -> bool:
        return TOPOLOGY in site.api.get("Node", site.node)["metadata"]["annotations"]

    wait_until(annotated, f"the annotation: {granted.log()[-3000:]}")
    there = traces(site, fake)
    assert there.objects > before.objects
    (made,) = granted.pods()
    granted.remove()
    assert traces(site, fake) == before
    assert site.api.list("Pod") == []
    folder = site.state / "kubelet" / "pods" / made["metadata"]["uid"]
    wait_until(lambda: not folder.exists(), "the kubelet has removed the pod's folder")
    wait_until(lambda: not site.containerd.tasks(), "nothing runs")
