"""The scheduler extender as installed by the chart, with its Service and its permissions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.charts import Values
from tests.e2e.documented import extender, rules
from tests.e2e.extender_process import PAGE, REQUIRE, question, wait_bound, wait_turned_away
from tests.e2e.helm import NAMESPACE, Helm
from tests.e2e.image import Image
from tests.e2e.installation import Installation, installed, prepared_site, values
from tests.e2e.kube import nodes
from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import GPU, gpu_pod
from tests.e2e.kube.service import Place, proxied
from tests.e2e.kubectl_apply import ObjectApplier
from tests.e2e.processes import get, wait_until
from tests.e2e.topology_publisher import IDS, ISLANDS
from tests.fakes.nvml import FakeNvml

NAME = "podgpu-extender"
PORT = 9410
"""The port of its pods."""

WANTED: Values = {
    "config": {"sinks": {"topology": {"kind": "node", "min_interval": "1s"}}},
    "extender": {"enabled": True},
}
MADE = "node2"
LARGE = {"cpu": "256", "memory": "2Ti", GPU: "8"}
"""Without the extender, the scheduler prefers such a node to the real one."""


@pytest.fixture(scope="module")
def site(loaded: Image, cluster: Cluster) -> Iterator[Cluster]:
    with prepared_site(cluster):
        yield cluster


@pytest.fixture(scope="module")
def plugin(site: Cluster) -> DevicePlugin:
    return site.plugin(IDS)


@pytest.fixture(scope="module")
def before(site: Cluster) -> set[str]:
    """All objects before the installation."""
    return ObjectApplier(site.api).everything()


@pytest.fixture(scope="module")
def release(
    site: Cluster,
    helm: Helm,
    plugin: DevicePlugin,
    before: set[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """podgpu on the node, which writes the annotation, and the extender."""
    fake = FakeNvml(ISLANDS, tmp_path_factory.mktemp("played"))
    with installed(site, helm, values(fake, WANTED)) as made:
        wait_ready(made)
        yield made


@pytest.fixture
def place(release: Installation, site: Cluster) -> Iterator[Place]:
    """The extender's Service."""
    with proxied(site.api, NAME, NAMESPACE) as found:
        yield found


def deployment(release: Installation) -> Object:
    where = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
    found: Object = release.kube.api.request("GET", where)
    return found


def wait_ready(release: Installation) -> None:
    def ready() -> bool:
        return int(deployment(release)["status"].get("readyReplicas", 0)) == 1

    wait_until(ready, "the Deployment is ready", seconds=60, every=0.2)


def value(place: Place, name: str, **labels: str) -> float | None:
    """Return the value of an extender metric; None if it is absent."""
    host, port = place
    try:
        page = get(port, "/metrics", host=host).body.decode()
    except OSError:
        return None
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def wait_passes(place: Place, gpus: int, passed: Sequence[str], failed: dict[str, str]) -> None:
    last = None

    def answered() -> bool:
        nonlocal last
        last = question(place, "filter", gpus, ["node1"])
        assert last["Error"] == ""
        return (last["NodeNames"], last["FailedNodes"]) == (passed, failed)

    try:
        wait_until(answered, "the answer", every=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from None


def test_the_service_of_the_extender_responds_according_to_the_annotation(
    release: Installation, site: Cluster, place: Place
) -> None:
    wait_until(lambda: value(place, "podgpu_extender_nodes", state="fresh") == 1, "the node")
    assert value(place, "podgpu_extender_up") == 1
    wait_passes(place, 8, ["node1"], {})
    assert question(place, "prioritize", 8, ["node1"]) == [{"Host": "node1", "Score": 10}]
    site.run(gpu_pod("held", 3))
    reason = "podgpu: 5 of 8 GPUs are free, the pod requests 8"
    wait_passes(place, 8, [], {"node1": reason})
    wait_passes(place, 5, ["node1"], {})
    site.remove("held")
    wait_passes(place, 8, ["node1"], {})


def test_the_scheduler_uses_the_service_of_the_extender(
    release: Installation, site: Cluster, place: Place
) -> None:
    """By address, because a scheduler in the host network cannot resolve names of Services."""
    wait_passes(place, 8, ["node1"], {})
    host, port = place
    nodes.add(site.api, MADE, LARGE)
    try:
        site.schedule_with({**extender(PAGE), "urlPrefix": f"http://{host}:{port}"})
        wait_until(lambda: value(place, "podgpu_extender_nodes", state="none") == 1, MADE)
        site.create(gpu_pod("free", 4, scheduled=True))
        assert wait_bound(site, "free") == "node1", "free GPUs of the other node are unknown"
        site.create(gpu_pod("large", 8, scheduled=True, annotations={REQUIRE: "nvlink"}))
        reason = "podgpu: the node has no topology annotation, and the pod requires nvlink"
        wait_turned_away(site, "large", f"1 {reason}", f"1 Insufficient {GPU}")
        for verb, count in (("filter", 2), ("prioritize", 1)):
            asked = value(place, "podgpu_extender_requests_total", verb=verb, result="ok")
            assert asked is not None
            assert asked >= count, verb
    finally:
        nodes.remove_all(site.api)
        for name in ("free", "large"):
            site.api.delete("Pod", name, "default", grace=1)
        site.schedule_with()


def role(release: Installation) -> Object:
    (found,) = [
        each
        for each in release.made.all("ClusterRole")
        if each["metadata"]["name"].endswith("-extender")
    ]
    return found


def restarted(release: Installation) -> Object:
    """Delete the pod of the Deployment, and return the new one."""
    (old,) = release.extenders()
    release.kube.api.delete("Pod", old["metadata"]["name"], NAMESPACE, grace=1)

    def another() -> Object | None:
        for each in release.extenders():
            running = each["status"].get("phase") == "Running"
            if running and each["metadata"]["uid"] != old["metadata"]["uid"]:
                return each
        return None

    return wait_until(another, "another pod", every=0.2)


def wait_up(pod: Object) -> None:
    own = (pod["status"]["podIP"], PORT)
    wait_until(lambda: value(own, "podgpu_extender_up") == 1, "it watches the Nodes", every=0.2)


@contextmanager
def granted(release: Installation, *verbs: str) -> Iterator[Object]:
    """Restart it for a while with only these verbs of its rule."""
    chart = role(release)
    assert chart["rules"] == rules(PAGE), "the documented rules"
    (rule,) = chart["rules"]
    release.applying.apply([{**chart, "rules": [{**rule, "verbs": list(verbs)}] if verbs else []}])
    try:
        made = restarted(release)
        yield made
    finally:
        release.applying.apply([chart])
    wait_up(made)
    wait_ready(release)


@pytest.mark.parametrize("left", [(), ("list",)], ids=["no rule", "no watch"])
def test_a_missing_permission_of_the_extender_is_logged(
    release: Installation, left: Sequence[str]
) -> None:
    """A server with streaming lists is first asked for `watch`."""
    with granted(release, *left) as made:
        name, own = made["metadata"]["name"], (made["status"]["podIP"], PORT)

        def named() -> bool:
            output = release.kube.pod_log(name, "extender", NAMESPACE)
            rule = 'apiGroups [""], resources ["nodes"], verbs [list, watch]'
            return "podgpu may not watch nodes" in output and rule in output

        wait_until(named, "the log names watch nodes", every=0.2)
        assert value(own, "podgpu_extender_up") == 0
        answer = get(PORT, "/readyz", host=own[0])
        assert answer.status == 503, answer
        # Controllers update the status, which takes some time.
        wait_until(lambda: not deployment(release)["status"].get("readyReplicas"), "not ready")


def test_a_streaming_api_server_does_not_need_the_list_permission(
    release: Installation,
) -> None:
    """Only older API servers need `list`."""
    with granted(release, "watch") as made:
        wait_up(made)


def test_uninstalling_leaves_nothing(
    release: Installation, site: Cluster, before: set[str]
) -> None:
    """This is the last test that needs this release."""
    there = ObjectApplier(site.api).everything()
    assert {f"Deployment {NAMESPACE}/{NAME}", f"Service {NAMESPACE}/{NAME}"} <= there
    release.remove()
    assert ObjectApplier(site.api).everything() == before
    assert site.api.list("Pod") == []
    wait_until(lambda: not site.containerd.tasks(), "nothing runs")
