"""Holders of devices with real kubelet, containerd and API server, and simulated GPUs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube import access, kubelet_state
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.kube.pods import GPU, STUBBORN, container, gpu_pod, pod, run
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.e2e.watched_podgpu import ACCOUNT, ALL, OFTEN, RULES, Owner, WatchedPodgpu, watching

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]
SOON = 2.0
"""Seconds within which a change has to be visible: much less than the sources' intervals without
hints and watches, and much more than needed."""

# After `max_age`, a kubelet has received all of its pods.
SETTLED = {**OFTEN, "podresources": {**OFTEN["podresources"], "max_age": "2s"}}

Watch = Callable[..., WatchedPodgpu]
Made = dict[str, Any]


@pytest.fixture
def watch(kube: Cluster, tmp_path: Path) -> Iterator[Watch]:
    """Start a podgpu that is stopped at the end."""
    with ExitStack() as stack:

        def start(
            *kinds: str, rules: Sequence[Made] = RULES, settled: bool = False
        ) -> WatchedPodgpu:
            options = SETTLED if settled else OFTEN
            return stack.enter_context(
                watching(kube, tmp_path / "podgpu", SCENE, kinds or ALL, rules, options=options)
            )

        yield start


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS)


def uid(made: Made) -> str:
    return str(made["metadata"]["uid"])


def given(plugin: DevicePlugin, at: int = -1) -> list[str]:
    """Return the devices of a request of the kubelet, by default the last one."""
    return sorted(plugin.asked[at])


def test_labels_appear_and_disappear_with_the_pod(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    podgpu.wait_owners({})
    made = kube.run(gpu_pod("train-0", 2, namespace="ml", labels={"team": "vision"}))
    owner = Owner("train-0", "main", uid(made), "ml")
    assert podgpu.wait_owners({device: [owner] for device in given(plugin)}) < SOON
    for device in given(plugin):
        labels = podgpu.readings(device)
        assert (labels["namespace"], labels["pod"], labels["container"]) == (
            "ml",
            "train-0",
            "main",
        )
    ((info, _),) = podgpu.of("podgpu_pod_info")
    assert (info["pod_uid"], info["phase"], info["label_team"]) == (uid(made), "Running", "vision")
    kube.remove("train-0", "ml")
    assert podgpu.wait_owners({}) < SOON
    assert podgpu.of("podgpu_pod_info") == []
    # No other holder was ever shown.
    assert podgpu.recorder.wrong_holders((device, owner) for device in given(plugin)) == set()


@pytest.mark.parametrize(
    ("kinds", "known"),
    [
        pytest.param(["podresources"], {"names"}, id="only pod-resources"),
        pytest.param(["checkpoint"], {"uid"}, id="only the checkpoint"),
        pytest.param(["podresources", "checkpoint"], {"names", "uid"}, id="both together"),
        pytest.param(["checkpoint", "pods"], {"names", "uid"}, id="checkpoint and API server"),
    ],
)
def test_each_source_identifies_the_pod_as_far_as_it_can(
    kube: Cluster, plugin: DevicePlugin, watch: Watch, kinds: list[str], known: set[str]
) -> None:
    podgpu = watch(*kinds, settled=True)
    made = kube.run(gpu_pod("train-0", 1))
    pod_uid = uid(made) if "uid" in known else ""
    owner = (
        Owner("train-0", "main", pod_uid) if "names" in known else Owner("", "main", pod_uid, "")
    )
    podgpu.wait_owners({given(plugin)[0]: [owner]})


def test_the_kubelet_is_restarted(kube: Cluster, plugin: DevicePlugin, watch: Watch) -> None:
    podgpu = watch()
    made = kube.run(gpu_pod("train-0", 2))
    first = Owner("train-0", "main", uid(made))
    owners = {device: [first] for device in given(plugin)}
    podgpu.wait_owners(owners)
    kube.kubelet.restart(down=3)
    plugin.wait_registered(2)
    podgpu.stays(lambda: podgpu.owners() == {d: set(o) for d, o in owners.items()}, 3)
    wait_until(lambda: podgpu.value("podgpu_source_up", source="podresources") == 1, "up again")
    more = kube.run(gpu_pod("train-1", 1))
    device, second = given(plugin)[0], Owner("train-1", "main", uid(more))
    podgpu.wait_owners({**owners, device: [second]})
    kube.remove("train-0")
    podgpu.wait_owners({device: [second]})
    true = [(device, second), *((each, first) for each in owners)]
    assert podgpu.recorder.wrong_holders(true) == set()


def test_the_api_server_is_restarted(kube: Cluster, plugin: DevicePlugin, watch: Watch) -> None:
    podgpu = watch()
    made = kube.run(gpu_pod("train-0", 1))
    owner = Owner("train-0", "main", uid(made))
    owners = {given(plugin)[0]: [owner]}
    podgpu.wait_owners(owners)
    kube.apiserver.stop()
    wait_until(lambda: podgpu.value("podgpu_source_up", source="pods") == 0, "source down")
    podgpu.stays(lambda: podgpu.owners() == {d: set(o) for d, o in owners.items()}, 2)
    kube.apiserver.start()
    wait_until(lambda: podgpu.value("podgpu_source_up", source="pods") == 1, "up again", 60)
    kube.kubelet.restart()  # without a restart it may take a minute to reconnect
    plugin.wait_registered(2)
    again = kube.run(gpu_pod("train-1", 1))
    owners[given(plugin)[0]] = [Owner("train-1", "main", uid(again))]
    podgpu.wait_owners(owners)


def test_the_token_is_rotated(kube: Cluster, plugin: DevicePlugin, watch: Watch) -> None:
    """The old token is invalid with its account, so a new connection needs the new token."""
    podgpu = watch()
    made = kube.run(gpu_pod("train-0", 1))
    podgpu.wait_owners({given(plugin)[0]: [Owner("train-0", "main", uid(made))]})
    podgpu.renew_account()
    kube.apiserver.restart()
    wait_until(lambda: podgpu.value("podgpu_source_up", source="pods") == 1, "up again", 60)
    kube.kubelet.restart()
    kube.remove("train-0")
    podgpu.wait_owners({})


def test_a_missing_permission_is_logged_and_recovers(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch(rules=())
    wait_until(lambda: podgpu.value("podgpu_source_up", source="pods") == 0, "source down")
    wait_until(
        lambda: "list" in podgpu.output() and "pods" in podgpu.output(),
        "the missing permission is logged",
    )
    made = kube.run(gpu_pod("train-0", 1))
    # The kubelet still reports the pod, and its checkpoint has the uid.
    podgpu.wait_owners({given(plugin)[0]: [Owner("train-0", "main", uid(made))]})
    assert podgpu.of("podgpu_pod_info") == []
    access.set_rules(kube.api, ACCOUNT, RULES)
    wait_until(lambda: podgpu.of("podgpu_pod_info"), "the pod's owner and labels", 90)
    podgpu.wait_value("podgpu_source_up", 1, source="pods")


def test_a_pod_is_replaced_by_one_of_the_same_name(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    true = set()
    for _ in range(5):
        made = kube.run(gpu_pod("web-0", 1))
        owner = Owner("web-0", "main", uid(made))
        device = given(plugin)[0]
        podgpu.wait_owners({device: [owner]})
        true.add((device, owner))
        kube.remove("web-0")
        # The next pod must not get the same GPU.
        offered = [other for other in IDS if other != device]
        plugin.set_devices(offered)
        kube.wait_allocatable(GPU, len(offered))
    podgpu.wait_owners({})
    assert podgpu.recorder.wrong_holders(true) == set()


def test_a_completed_pod_releases_its_gpu(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    job = container(resources={GPU: 1}, command=run("sleep 2"))
    made = kube.create(pod("job", job, restart="Never"))
    device = wait_until(lambda: plugin.asked, "the kubelet requests a device")[0][0]
    podgpu.wait_owners({device: [Owner("job", "main", uid(made))]})
    kube.api.wait_phase("job", "Succeeded")
    assert podgpu.wait_owners({}) < SOON
    # The pod still exists in the API and in the kubelet's checkpoint.
    assert kubelet_state.checkpointed(uid(made)) == {"main": [device]}
    podgpu.stays(lambda: podgpu.owners() == {}, 2)
    after = kube.run(gpu_pod("after", 4))
    podgpu.wait_owners({each: [Owner("after", "main", uid(after))] for each in IDS})
    assert podgpu.of("podgpu_attribution_conflicts", UUID=device)[0][1] == 0


def test_a_static_pod_has_the_uid_of_the_kubelet(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    name = kube.add_static_pod(gpu_pod("agent", 1))
    made = wait_until(lambda: kube.api.find("Pod", name, "default"), "its mirror")
    its_own = made["metadata"]["annotations"]["kubernetes.io/config.mirror"]
    device = given(plugin)[0]
    podgpu.wait_owners({device: [Owner(name, "main", its_own)]})
    assert set(kubelet_state.checkpointed(uid(made))) == set()  # it has another uid there
    kube.remove_static_pod("agent")
    podgpu.wait_owners({})
    shown = {seen.owner for _, seen_then in podgpu.recorder.history for seen in seen_then}
    assert {one.pod for one in shown} <= {name, ""}


def test_init_containers_and_sidecars_are_holders(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    prepare = container("prepare", {GPU: 1}, command=run("sleep 3"))
    side = container("side", {GPU: 1}, sidecar=True)
    made = kube.create(pod("both", container(resources={GPU: 1}), init=[prepare, side]))
    wait_until(lambda: plugin.asked, "the kubelet requests a device")
    known = uid(made)
    first = plugin.asked[0][0]
    wait_until(
        lambda: podgpu.owners().get(first, set()) >= {Owner("both", "prepare", known)},
        "the init container's GPU",
    )
    kube.api.wait_phase("both", "Running")
    held = kubelet_state.checkpointed(known)
    (lasting,), (beside,) = held["main"], held["side"]
    podgpu.wait_owners(
        {lasting: [Owner("both", "main", known)], beside: [Owner("both", "side", known)]}
    )


def test_a_pod_that_the_kubelet_rejected_holds_nothing(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    made = kube.run(gpu_pod("train-0", 3))
    owners = {device: [Owner("train-0", "main", uid(made))] for device in given(plugin)}
    podgpu.wait_owners(owners)
    refused = kube.run(gpu_pod("greedy", 2), "Failed")
    assert refused["status"]["reason"] == "UnexpectedAdmissionError"
    podgpu.stays(lambda: podgpu.owners() == {d: set(o) for d, o in owners.items()}, 2)
    true = [(device, owner) for device, (owner,) in owners.items()]
    assert podgpu.recorder.wrong_holders(true) == set()


@pytest.mark.parametrize(
    "kinds", [ALL, ("podresources", "checkpoint")], ids=["all", "no API server"]
)
def test_devices_that_the_plugin_substituted_are_attributed(
    kube: Cluster, plugin: DevicePlugin, watch: Watch, kinds: tuple[str, ...]
) -> None:
    """The kubelet lists the requested device, but the container has another one."""
    instead = dict(zip(IDS, reversed(IDS), strict=True))
    plugin.substitute = lambda asked: [instead[device] for device in asked]
    podgpu = watch(*kinds)
    made = kube.run(gpu_pod("swapped", 1))
    (asked,) = given(plugin)
    assert kubelet_state.held() == {"swapped": {"main": [asked]}}
    podgpu.wait_owners({instead[asked]: [Owner("swapped", "main", uid(made))]})
    (seen,) = podgpu.holders()
    assert (seen.source, seen.evidence) == ("checkpoint", "plugin_answer")
    # The kubelet counts one device, although it is another one.
    podgpu.wait_value("podgpu_resource_devices", 1, resource=GPU, state="allocated")


def test_a_resource_claim_is_resolved_by_the_resource_slice(kube: Cluster, watch: Watch) -> None:
    driver = kube.dra_driver({f"gpu-{at}": device for at, device in enumerate(IDS)})
    podgpu = watch()
    driver.claim("one", uuid=IDS[2])
    user = container(claims=["gpu"])
    made = kube.run(pod("claimer", user, claims={"gpu": "one"}, scheduled=True))
    podgpu.wait_owners({IDS[2]: [Owner("claimer", "main", uid(made))]})
    kube.remove("claimer")
    podgpu.wait_owners({})


def test_a_resource_claim_without_the_api_server_is_an_unresolved_id(
    kube: Cluster, watch: Watch
) -> None:
    driver = kube.dra_driver({f"gpu-{at}": device for at, device in enumerate(IDS)})
    podgpu = watch("podresources")
    driver.claim("one")
    kube.run(pod("claimer", container(claims=["gpu"]), claims={"gpu": "one"}, scheduled=True))
    unresolved = "podgpu_unresolved_device_ids_total"
    wait_until(lambda: podgpu.value(unresolved, source="podresources") == 1, "an unresolved id")
    assert podgpu.owners() == {}
    assert podgpu.output().count("matches no device of this node") == 1


def test_a_gpu_that_the_device_plugin_withdrew_is_counted(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()

    def counts() -> dict[str, float]:
        found = podgpu.of("podgpu_resource_devices", resource=GPU)
        return {labels["state"]: value for labels, value in found}

    made = kube.run(gpu_pod("train-0", 1))
    podgpu.wait_owners({given(plugin)[0]: [Owner("train-0", "main", uid(made))]})
    wait_until(
        lambda: counts() == {"present": 4, "advertised": 4, "allocated": 1},
        "all devices are advertised",
    )
    plugin.set_health(IDS[3], healthy=False)
    wait_until(
        lambda: counts() == {"present": 4, "advertised": 3, "allocated": 1},
        "one device is withdrawn",
    )


def test_a_terminating_pod_holds_its_gpu_until_it_has_ended(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    made = kube.run(pod("slow", container(resources={GPU: 1}, command=STUBBORN), grace=4))
    owners = {given(plugin)[0]: [Owner("slow", "main", uid(made))]}
    podgpu.wait_owners(owners)
    kube.api.delete("Pod", "slow", "default", grace=4)
    began = time.monotonic()
    podgpu.stays(lambda: podgpu.owners() == {d: set(o) for d, o in owners.items()}, 3)
    kube.api.wait_gone("Pod", "slow", "default")
    assert podgpu.wait_owners({}) < SOON
    assert time.monotonic() - began > 3


def test_scheduler_annotations_give_shares_of_a_gpu(kube: Cluster, watch: Watch) -> None:
    """Koordinator allocates shares by an annotation, without the kubelet.

    The kubelet ignores extended resources that its node does not have.
    """
    podgpu = watch()
    key = "scheduling.koordinator.sh/device-allocated"
    half = '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50"}}]}'
    asking = container(resources={"koordinator.sh/gpu-core": 50})
    made = {
        name: kube.run(pod(name, asking, annotations={key: half})) for name in ("half-a", "half-b")
    }
    podgpu.wait_owners({IDS[1]: [Owner(name, "main", uid(one)) for name, one in made.items()]})
    shares = podgpu.of("podgpu_device_holder_share", UUID=IDS[1])
    assert [value for _, value in shares] == [0.5, 0.5]
    assert podgpu.readings(IDS[1])["pod"] == ""
    kube.remove("half-a")
    podgpu.wait_owners({IDS[1]: [Owner("half-b", "main", uid(made["half-b"]))]})
    assert podgpu.readings(IDS[1])["pod"] == "half-b"
