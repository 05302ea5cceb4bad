"""The sink `pods`: API server and kubelet are real, the GPUs are simulated."""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pipeline.allocations.own_annotations import MARK
from tests.e2e.documented import objects, rules
from tests.e2e.kube import access, nodes
from tests.e2e.kube.api import STRATEGIC, ApiError, Object, path
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import GPU, gpu_pod, pod
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.e2e.watched_podgpu import ALL, OFTEN, Owner, WatchedPodgpu, watching

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]
SOURCE, SINK = "pods", "annotations"
"""Names of the source of annotations and of the sink."""

WRITER = "podgpu-pods"
"""The service account for writing; the one for watching pods has other permissions."""

PAGE = "sinks/pods.md"
READING, WRITING = rules("sources/pods.md"), rules(PAGE)
READS_IT = {**OFTEN, SOURCE: {"device_annotations": [GPU]}}

Watch = Callable[..., WatchedPodgpu]


@pytest.fixture
def watch(kube: Cluster, tmp_path: Path) -> Iterator[Watch]:
    """Start a podgpu with the documented permissions; it is stopped at the end."""
    with ExitStack() as stack:

        def start(
            kinds: Collection[str] = ALL,
            may: Collection[Object] = WRITING,
            kubeconfig: Path | None = None,
            **how: Any,
        ) -> WatchedPodgpu:
            kubeconfig = kubeconfig or access.account(tmp_path, kube.api, WRITER, may)
            sinks = {SINK: {"kind": "pods", "kubeconfig": str(kubeconfig)}}
            folder = tmp_path / "podgpu"
            return stack.enter_context(
                watching(kube, folder, SCENE, kinds, READING, sinks=sinks, **how)
            )

        yield start


@pytest.fixture
def policy(kube: Cluster) -> Iterator[None]:
    """The documented admission policy."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    made = [kube.api.create(*objects(PAGE, kind)) for kind in kinds]
    yield
    for each in made:
        kube.api.delete(each["kind"], each["metadata"]["name"])


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS)


def written(kube: Cluster, name: str, namespace: str = "default") -> dict[str, str]:
    """Return the annotations of a pod that podgpu may write."""
    found = kube.api.pod(name, namespace)["metadata"].get("annotations", {})
    return {key: found[key] for key in (GPU, MARK) if key in found}


def said_of(devices: Collection[str]) -> dict[str, str]:
    """Return the annotations of a pod that holds these devices."""
    value = ",".join(sorted(devices, key=IDS.index))
    return {GPU: value, MARK: json.dumps({GPU: value}, separators=(",", ":"))}


def wait_written(
    kube: Cluster, devices: Collection[str], name: str, namespace: str = "default"
) -> None:
    expected = said_of(devices)
    try:
        wait_until(lambda: written(kube, name, namespace) == expected, "annotations")
    except AssertionError as error:
        raise AssertionError(f"{error}: {expected}, {written(kube, name, namespace)}") from None


def uid(made: Object) -> str:
    return str(made["metadata"]["uid"])


def test_the_annotations_name_the_devices_of_a_pod(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    """podgpu's own annotation is no claim for a podgpu that reads it."""
    podgpu = watch(options=READS_IT)
    made = kube.run(gpu_pod("train-0", 2, namespace="ml"))
    given = plugin.asked[0]
    wait_written(kube, given, "train-0", "ml")
    owners = {device: {Owner("train-0", "main", uid(made), "ml")} for device in given}
    podgpu.wait_owners(owners)
    podgpu.stays(lambda: podgpu.owners() == owners, 2)
    assert SOURCE not in {seen.source for _, shown in podgpu.recorder.history for seen in shown}
    assert "is ignored" not in podgpu.output()
    # One request writes it; podgpu's own change causes no further request.
    podgpu.wait_value("podgpu_sink_requests_total", 1, sink=SINK, method="patch", result="ok")
    podgpu.wait_value("podgpu_sink_up", 1, sink=SINK)


def test_a_changed_annotation_is_a_claim_and_is_kept(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch(options=READS_IT)
    made = kube.run(gpu_pod("train-0", 1))
    (given,) = plugin.asked[0]
    wait_written(kube, [given], "train-0")
    other = next(device for device in IDS if device != given)
    theirs = json.dumps({GPU: other})
    kube.api.patch("Pod", "train-0", {"metadata": {"annotations": {GPU: theirs}}}, "default")
    podgpu.stays(lambda: written(kube, "train-0")[GPU] == theirs, 2)
    # It does not change the attribution of plugin-managed devices.
    assert podgpu.owners() == {given: {Owner("train-0", "main", uid(made))}}


def test_an_annotation_of_another_writer_is_kept(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    kube.run(gpu_pod("restored", 2, annotations={GPU: "GPU-of-another-life"}))
    kube.run(gpu_pod("train-0", 1))
    wait_written(kube, plugin.asked[1], "train-0")
    foreign = {"sink": SINK, "operation": "annotate", "reason": "foreign"}
    wait_until(lambda: podgpu.value("podgpu_sink_errors_total", **foreign) == 1, "it is counted")
    assert written(kube, "restored") == {GPU: "GPU-of-another-life"}


@pytest.mark.parametrize("kinds", [ALL, ("podresources",)], ids=["all", "only names"])
def test_a_recreated_pod_of_the_same_name_gets_its_own_annotations(
    kube: Cluster, plugin: DevicePlugin, watch: Watch, kinds: Collection[str]
) -> None:
    watch(kinds)
    for _ in range(2):
        kube.run(gpu_pod("web-0", 1))
        (device,) = plugin.asked[-1]
        wait_written(kube, [device], "web-0")
        kube.remove("web-0")
        # The next pod must not get the same GPU.
        offered = [other for other in IDS if other != device]
        plugin.set_devices(offered)
        kube.wait_allocatable(GPU, len(offered))


def test_the_mirror_pod_of_a_static_pod_is_annotated(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    watch()
    mirror = kube.add_static_pod(gpu_pod("agent", 2))
    made = wait_until(lambda: kube.api.find("Pod", mirror, "default"), "its mirror")
    wait_written(kube, plugin.asked[0], mirror)
    # It is still the same mirror pod: the kubelet compares an annotation that has not changed.
    kube.api.wait_phase(mirror, "Running")
    assert uid(kube.api.pod(mirror)) == uid(made)


def test_a_missing_permission_is_logged_and_retried(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch(may=())
    kube.run(gpu_pod("train-0", 1))
    wait_until(lambda: podgpu.value("podgpu_sink_up", sink=SINK) == 0, "sink down")
    wait_until(
        lambda: 'resources ["pods"], verbs [get, patch]' in podgpu.output(),
        "the missing permission is logged",
    )
    access.set_rules(kube.api, WRITER, WRITING)
    wait_written(kube, plugin.asked[0], "train-0")
    wait_until(lambda: podgpu.value("podgpu_sink_up", sink=SINK) == 1, "up again")


def test_the_admission_policy_allows_only_the_documented_annotations(
    kube: Cluster, plugin: DevicePlugin, watch: Watch, policy: None, tmp_path: Path
) -> None:
    """A client with the token of podgpu's pod can only write what podgpu writes."""
    access.service_account(kube.api, "podgpu", WRITING, "podgpu")
    daemon = pod("podgpu", namespace="podgpu")
    daemon["spec"]["serviceAccountName"] = "podgpu"
    token = access.token(kube.api, "podgpu", "podgpu", pod=kube.run(daemon))
    taken = kube.api.as_user(token)

    kube.run(gpu_pod("train-0", 2, namespace="ml", labels={"team": "vision"}))
    elsewhere = gpu_pod("elsewhere", namespace="ml")
    nodes.add(kube.api, "node2", {GPU: "8"})
    elsewhere["spec"]["nodeName"] = "node2"
    kube.create(elsewhere)

    def refused(changes: Object, name: str = "train-0") -> bool:
        try:
            taken.patch("Pod", name, changes, "ml")
        except ApiError as error:
            return error.status == HTTPStatus.UNPROCESSABLE_ENTITY
        return False

    image = {"containers": [{"name": "main", "image": "docker.io/local/other:1"}]}
    # The value changes at each attempt, because a repeated patch without change is not checked.
    teams = count()

    def in_force() -> bool:
        return refused({"metadata": {"labels": {"team": f"theirs-{next(teams)}"}}})

    wait_until(in_force, "the policy is in force")
    assert refused({"spec": {"activeDeadlineSeconds": 1}})
    assert refused({"metadata": {"finalizers": ["example.com/stay"]}})
    assert refused({"metadata": {"annotations": {"example.com/theirs": "yes"}}})
    assert refused({"metadata": {"annotations": {GPU: IDS[0]}}}, "elsewhere")
    with pytest.raises(ApiError, match="only annotations"):
        taken.request("PATCH", path("Pod", "ml", "train-0"), {"spec": image}, STRATEGIC)

    watch(kubeconfig=access.kubeconfig(tmp_path / "taken.yaml", kube.api, token=token))
    wait_written(kube, plugin.asked[0], "train-0", "ml")
