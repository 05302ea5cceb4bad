"""The test cluster behaves as the other tests expect."""

from collections.abc import Sequence

import pytest

from tests.e2e.kube import access, cdi, kubelet_state, nodes
from tests.e2e.kube.api import ApiError
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin, by_cdi
from tests.e2e.kube.pods import GPU, container, gpu_pod, pod, run
from tests.e2e.processes import wait_until

IDS = [f"GPU-{at}0000000-0000-4000-8000-00000000000{at}" for at in range(4)]
NUMA = {device: at // 2 for at, device in enumerate(IDS)}


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS, numa=NUMA)


def uid(made: dict[str, object]) -> str:
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["uid"])


def test_a_pod_gets_the_devices_that_the_kubelet_reports(
    kube: Cluster, plugin: DevicePlugin
) -> None:
    made = kube.run(gpu_pod("train-0", 2))
    (asked,) = plugin.asked
    assert len(asked) == 2
    assert kubelet_state.held() == {"train-0": {"main": sorted(asked)}}
    assert kubelet_state.checkpointed(uid(made)) == {"main": sorted(asked)}
    (listed,) = kubelet_state.pod_resources()
    nodes = {
        device.device_ids[0]: device.topology.nodes[0].ID for device in listed.containers[0].devices
    }
    assert nodes == {device: NUMA[device] for device in asked}
    kube.remove("train-0")
    assert kubelet_state.held() == {}


def test_a_container_sees_the_environment_that_the_device_plugin_set(
    kube: Cluster, plugin: DevicePlugin
) -> None:
    shown = container(resources={GPU: 1}, command=run("echo $NVIDIA_VISIBLE_DEVICES"))
    kube.run(pod("show", shown, restart="Never"), "Succeeded")
    assert kube.pod_log("show") == f"{plugin.asked[0][0]}\n"
    # An ended container holds no device.
    wait_until(lambda: kubelet_state.held() == {}, "the device is free")


def test_a_pod_that_requests_too_many_devices_is_rejected(
    kube: Cluster, plugin: DevicePlugin
) -> None:
    refused = kube.run(gpu_pod("greedy", 5), "Failed")
    assert refused["status"]["reason"] == "UnexpectedAdmissionError"
    assert kubelet_state.held() == {}


def test_a_withdrawn_device_is_not_allocated(kube: Cluster, plugin: DevicePlugin) -> None:
    plugin.set_health(IDS[0], healthy=False)
    kube.wait_allocatable(GPU, 3)
    kube.run(gpu_pod("three", 3))
    assert kubelet_state.held() == {"three": {"main": IDS[1:]}}
    plugin.set_devices(IDS[:2])
    kube.wait_allocatable(GPU, 2)


def test_init_containers_and_sidecars_have_devices(kube: Cluster, plugin: DevicePlugin) -> None:
    """Devices of an init container are reused by later containers; a sidecar keeps its devices."""
    made = kube.run(
        pod(
            "both",
            container(resources={GPU: 1}),
            init=[
                container("prepare", {GPU: 1}, command=run("true")),
                container("side", {GPU: 1}, sidecar=True),
            ],
        )
    )
    held = kubelet_state.checkpointed(uid(made))
    assert held.keys() == {"prepare", "side", "main"}
    assert held["prepare"] in (held["side"], held["main"])
    assert held["side"] != held["main"]
    # Pod-resources does not list ended init containers.
    assert kubelet_state.held() == {"both": {"side": held["side"], "main": held["main"]}}


def test_a_mirror_pod_has_the_node_name_as_suffix(kube: Cluster, plugin: DevicePlugin) -> None:
    mirror = kube.add_static_pod(gpu_pod("static"))
    assert mirror == "static-node1"
    mirrored = kube.api.wait_phase(mirror, "Running")
    assert kubelet_state.held() == {mirror: {"main": plugin.asked[0]}}
    # In the checkpoint its uid is the hash of its manifest, which is an annotation of the mirror
    # pod.
    hashed = mirrored["metadata"]["annotations"]["kubernetes.io/config.hash"]
    assert hashed != uid(mirrored)
    assert kubelet_state.checkpointed(hashed) == {"main": plugin.asked[0]}


def test_a_device_plugin_can_substitute_devices(kube: Cluster) -> None:
    def last_ones(ids: Sequence[str]) -> Sequence[str]:
        return IDS[-len(ids) :]

    plugin = kube.plugin(IDS[:2], substitute=last_ones)
    made = kube.run(gpu_pod("moved"))
    assert kubelet_state.held() == {"moved": {"main": plugin.asked[0]}}
    assert kubelet_state.answered(uid(made)).envs["NVIDIA_VISIBLE_DEVICES"] == IDS[-1]


def test_devices_can_be_injected_by_cdi_name(kube: Cluster) -> None:
    cdi.write("nvidia.com/gpu", IDS)
    plugin = kube.plugin(IDS, form=by_cdi("nvidia.com/gpu"))
    shown = container(resources={GPU: 1}, command=run("env; sleep 1000"))
    made = kube.run(pod("cdi", shown))
    (given,) = kubelet_state.answered(uid(made)).cdi_devices
    ((asked,),) = plugin.asked
    assert given.name == f"nvidia.com/gpu={asked}"
    wait_until(lambda: f"CDI_{IDS.index(asked)}={asked}\n" in kube.pod_log("cdi"), "edited")


def test_a_restarted_kubelet_knows_its_allocations(kube: Cluster, plugin: DevicePlugin) -> None:
    kube.run(gpu_pod("stays", 2))
    before = kubelet_state.held()
    kube.kubelet.restart()
    plugin.wait_registered(2)
    wait_until(lambda: kubelet_state.held() == before, "allocations are restored")
    kube.wait_allocatable(GPU, 4)
    kube.run(gpu_pod("new", 2))
    held = kubelet_state.held()
    assert sorted(held["stays"]["main"] + held["new"]["main"]) == IDS


def test_pods_survive_restarts_of_the_api_server_and_containerd(
    kube: Cluster, plugin: DevicePlugin
) -> None:
    made = kube.run(gpu_pod("stays"))
    kube.apiserver.restart()
    assert uid(kube.api.pod("stays")) == uid(made)
    kube.containerd.restart()
    kube.wait_node_ready()
    kube.run(gpu_pod("new"))
    assert kubelet_state.held().keys() == {"stays", "new"}


def test_a_service_account_may_do_what_its_rules_allow(kube: Cluster) -> None:
    access.service_account(kube.api, "reader", [access.rule(["pods"])])
    token = access.token(kube.api, "reader", seconds=access.SHORTEST)
    reader = kube.api.as_user(token)
    assert reader.list("Pod") == []
    with pytest.raises(ApiError, match="403 Forbidden"):
        reader.list("Node")
    with pytest.raises(ApiError, match="403 Forbidden"):
        reader.create(pod("unwanted"))
    access.set_rules(kube.api, "reader", [access.rule(["nodes"])])
    wait_until(lambda: allowed(reader.list, "Node"), "the new rules are in force")
    access.remove_service_account(kube.api, "reader")
    wait_until(lambda: not allowed(reader.list, "Node"), "the token is invalid")


def allowed(ask: object, kind: str) -> bool:
    assert callable(ask)
    try:
        ask(kind)
    except ApiError:
        return False
    return True


def test_a_resource_claim_is_allocated_and_prepared(kube: Cluster) -> None:
    driver = kube.dra_driver({"gpu-0": IDS[0], "gpu-1": IDS[1]})
    driver.claim("second", uuid=IDS[1])
    shown = container(claims=["gpu"], command=run("env; sleep 1000"))
    made = kube.run(pod("claimant", shown, claims={"gpu": "second"}))
    assert made["spec"]["nodeName"] == kube.node
    (listed,) = kubelet_state.pod_resources()
    (dynamic,) = listed.containers[0].dynamic_resources
    assert (dynamic.claim_name, dynamic.claim_namespace) == ("second", "default")
    (resource,) = dynamic.claim_resources
    assert (resource.driver_name, resource.pool_name) == (driver.name, driver.pool)
    assert resource.device_name == "gpu-1"
    ((prepared,),) = driver.prepared.values()
    (named,) = resource.cdi_devices
    assert named.name == f"k8s.gpu.nvidia.com/claim={prepared}"
    wait_until(lambda: f"={prepared}\n" in kube.pod_log("claimant"), "the container has the device")
    kube.tidy()
    assert driver.prepared == {}
    assert kube.api.list("ResourceClaim") == []


def test_a_refused_resource_claim_is_prepared_later(kube: Cluster) -> None:
    driver = kube.dra_driver({"gpu-0": IDS[0]})
    driver.refusal = "out of order"
    driver.claim("one")
    kube.create(pod("waits", container(claims=["gpu"]), claims={"gpu": "one"}))
    wait_until(lambda: driver.refused, "the kubelet has requested the device")
    (listed,) = kubelet_state.pod_resources()
    assert [each.claim_name for each in listed.containers[0].dynamic_resources] == ["one"]
    assert not listed.containers[0].dynamic_resources[0].claim_resources
    driver.refusal = ""
    kube.api.wait_phase("waits", "Running")
    assert kubelet_state.pod_resources()[0].containers[0].dynamic_resources[0].claim_resources


def test_the_scheduler_binds_pods_to_a_node_without_a_kubelet(
    kube: Cluster, plugin: DevicePlugin
) -> None:
    nodes.add(kube.api, "node2", {"cpu": "4", "memory": "8Gi", GPU: "8"})
    kube.ensure_scheduler()
    kube.create(gpu_pod("large", 8, scheduled=True))
    wait_until(lambda: kube.api.pod("large")["spec"].get("nodeName") == "node2", "the pod is bound")
    kube.run(gpu_pod("small", 4, scheduled=True))
    assert kubelet_state.held().keys() == {"small"}
    assert kube.api.pod("large")["status"]["phase"] == "Pending"
    kube.tidy()
    assert [node["metadata"]["name"] for node in kube.api.list("Node")] == [kube.node]
    assert kube.api.list("Pod") == []
