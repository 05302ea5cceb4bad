"""Annotations, variables and mounts of a pod do not change the attribution of other pods' GPUs.

API server, kubelet and containerd are real, the GPUs are simulated. `victim` holds a GPU that the
kubelet allocated. `evil` is a pod with a malicious author.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.accounts import BUSY, HELD, Growth, pid, wait_busy, work
from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin, by_nodes
from tests.e2e.kube.pods import container, gpu_pod, pod
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.e2e.watched_podgpu import ALL, OFTEN, Owner, WatchedPodgpu, watching

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]
MINORS = {gpu.uuid: gpu.minor or 0 for gpu in SCENE.gpus}
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
CORE = "koordinator.sh/gpu-core"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTS = "/var/run/nvidia-container-devices"
CONFLICTS = "podgpu_attribution_conflicts"

OPTIONS: Mapping[str, Mapping[str, str]] = {
    **OFTEN,
    "nvml": {**OFTEN["nvml"], "usage_interval": "1s"},
}
INJECTING: Mapping[str, Mapping[str, str]] = {**OPTIONS, "nri": {"inject": "koordinator"}}

Watch = Callable[..., WatchedPodgpu]


@pytest.fixture
def watch(kube: Cluster, tmp_path: Path) -> Iterator[Watch]:
    """Start a podgpu that is stopped at the end."""
    with ExitStack() as stack:

        def start(*kinds: str, options: Mapping[str, Mapping[str, str]] = OPTIONS) -> WatchedPodgpu:
            podgpu = stack.enter_context(
                watching(kube, tmp_path / "podgpu", SCENE, kinds or ALL, options=options)
            )
            if "nri" in kinds:
                wait_until(lambda: "connected to containerd" in podgpu.output(), "connected")
            return podgpu

        yield start


@pytest.fixture
def plugin(kube: Cluster) -> DevicePlugin:
    return kube.plugin(IDS)


def owner(made: Object) -> Owner:
    meta = made["metadata"]
    return Owner(meta["name"], "main", meta["uid"], meta["namespace"])


def given(plugin: DevicePlugin) -> str:
    """Return the device that the kubelet allocated last."""
    (device,) = plugin.asked[-1]
    return device


def allocated(*devices: str, core: int = 100) -> dict[str, str]:
    """Return koordinator's annotation for a percentage of these devices."""
    gpus = [{"minor": MINORS[each], "id": each, "resources": {CORE: str(core)}} for each in devices]
    return {KOORDINATOR: json.dumps({"gpu": gpus})}


def free(podgpu: WatchedPodgpu) -> list[str] | None:
    """Return the free devices according to `/topology`; None while this is unknown."""
    gpus = podgpu.topology()["gpus"]
    if any("state" not in gpu for gpu in gpus):
        return None
    return [gpu["uuid"] for gpu in gpus if gpu["state"] == "free"]


def without(*held: str) -> list[str]:
    return [device for device in IDS if device not in held]


def conflicts(podgpu: WatchedPodgpu) -> dict[str, float]:
    """Return the number of conflicts by device, without zeros."""
    return {labels["UUID"]: value for labels, value in podgpu.of(CONFLICTS) if value}


def heard(podgpu: WatchedPodgpu, name: str) -> None:
    """Wait until podgpu has a pod: the log has a warning about it, or it is a holder."""
    wait_until(
        lambda: f"pod default/{name}" in podgpu.output() or podgpu.of("podgpu_pod_info", pod=name),
        f"{name} is known",
    )


def stay(podgpu: WatchedPodgpu, true: Mapping[str, Object]) -> None:
    """Assert that these pods hold these devices, and that no other holder was ever shown."""
    owners = {device: {owner(made)} for device, made in true.items()}
    podgpu.wait_owners(owners)
    podgpu.stays(lambda: podgpu.owners() == owners, 1)
    expected = [(device, one) for device, (one,) in owners.items()]
    assert podgpu.recorder.wrong_holders(expected) == set()


# T1: an annotation against the kubelet.


def test_t1a_an_annotation_does_not_take_anothers_gpu(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    victim = kube.run(gpu_pod("victim"))
    a = given(plugin)
    evil = kube.run(gpu_pod("evil", annotations=allocated(a)))
    b = given(plugin)
    work(podgpu, {a: victim, b: evil})
    stay(podgpu, {a: victim, b: evil})
    assert free(podgpu) == without(a, b)
    # The conflict is counted and logged.
    wait_until(lambda: conflicts(podgpu) == {a: 1}, "the conflict")
    assert (
        f"device {a}: pod default/evil also claims it, but default/victim holds it"
        in podgpu.output()
    )
    wait_busy(podgpu, a, "victim")
    grown = Growth(podgpu)
    assert (grown.held(a, "victim"), grown.held(b, "evil")) == pytest.approx((1, 1))
    assert grown.of(BUSY, a, "victim") > 1
    assert podgpu.of(HELD, UUID=a, pod="evil") == []
    assert podgpu.of(BUSY, UUID=a, pod="evil") == []


def test_t1b_an_annotation_does_not_reduce_the_own_share(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    podgpu = watch()
    evil = kube.run(gpu_pod("evil"))
    b = given(plugin)
    kube.api.patch("Pod", "evil", {"metadata": {"annotations": allocated(b, core=1)}}, "default")
    stay(podgpu, {b: evil})
    assert [value for _, value in podgpu.of("podgpu_device_holder_share", UUID=b)] in ([], [1])
    assert free(podgpu) == without(b)
    assert Growth(podgpu).held(b, "evil") == pytest.approx(1)


@pytest.mark.parametrize("named", [IDS[:1], IDS], ids=["c, one GPU", "d, all GPUs"])
def test_t1cd_an_annotation_has_no_effect_on_a_pod_without_gpu_request(
    kube: Cluster, plugin: DevicePlugin, watch: Watch, named: list[str]
) -> None:
    podgpu = watch()
    kube.plugin(["fuse-0"], resource="example.com/fuse", form=lambda _: {})
    fuse = container(resources={"example.com/fuse": 1})
    kube.run(pod("evil", fuse, annotations=allocated(*named)))
    heard(podgpu, "evil")
    stay(podgpu, {})
    assert free(podgpu) == IDS
    assert conflicts(podgpu) == {}
    # The kubelet can allocate all GPUs.
    victim = kube.run(gpu_pod("victim", 4))
    stay(podgpu, dict.fromkeys(IDS, victim))
    assert Growth(podgpu, 2).held(IDS[0], "victim") == pytest.approx(1)
    assert podgpu.of(HELD, pod="evil") == []


def test_t1_the_koordinator_resource_gives_no_plugin_managed_gpu(
    kube: Cluster, plugin: DevicePlugin, watch: Watch
) -> None:
    """The kubelet ignores a resource that its node does not have, so any pod can request it."""
    podgpu = watch()
    victim = kube.run(gpu_pod("victim"))
    a = given(plugin)
    core = container(resources={CORE: 400})
    kube.run(pod("evil", core, annotations=allocated(*IDS)))
    heard(podgpu, "evil")
    stay(podgpu, {a: victim})
    wait_until(lambda: conflicts(podgpu).get(a) == 1, "the conflict")
    assert free(podgpu) == without(a)


# T2: a variable or a mount against the device nodes of the runtime.


def mounting(made: Object, path: str) -> Object:
    """Mount an empty folder at a path in a pod's first container."""
    made["spec"]["volumes"] = [{"name": "any", "emptyDir": {}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "any", "mountPath": path}]
    return made


def by_variable(device: str) -> Object:
    return pod("evil", container(resources={"nvidia.com/gpu": 1}, env={VISIBLE: device}))


def by_mount(device: str) -> Object:
    return mounting(gpu_pod("evil"), f"{MOUNTS}/{device}")


@pytest.mark.parametrize("kinds", [("nri",), ("nri", *ALL)], ids=["nri alone", "all sources"])
@pytest.mark.parametrize("asks", [by_variable, by_mount])
def test_t2_a_variable_or_a_mount_does_not_take_anothers_gpu(
    kube: Cluster,
    tmp_path: Path,
    watch: Watch,
    asks: Callable[[str], Object],
    kinds: tuple[str, ...],
) -> None:
    plugin = kube.plugin(IDS, form=by_nodes(MINORS, tmp_path / "nodes"))
    podgpu = watch(*kinds)
    victim = kube.run(gpu_pod("victim"))
    a = given(plugin)
    evil = kube.run(asks(a))
    b = given(plugin)
    # The container uses a GPU that was not allocated to it.
    work(podgpu, {a: evil, b: evil})
    stay(podgpu, {a: victim, b: evil})
    wait_until(
        lambda: f"device {a}: container default/evil/main has access" in podgpu.output(), "it"
    )
    # Without the kubelet, it is unknown whether a container with access holds the device.
    assert free(podgpu) == (None if kinds == ("nri",) else without(a, b))
    wait_busy(podgpu, a, "evil")
    grown = Growth(podgpu)
    assert (grown.held(a, "victim"), grown.held(b, "evil")) == pytest.approx((1, 1))
    # Use is not a holding: busy time belongs to the container that uses the GPU.
    assert grown.held(a, "evil") == 0
    assert grown.of(BUSY, a, "evil") > 1
    assert grown.of(BUSY, a, "victim") == 0


# T3: injection.


def environment(made: Object) -> dict[str, str]:
    """Return the environment of the container's program, after runc has started it."""

    def found() -> dict[str, str]:
        raw = (Path("/proc") / str(pid(made)) / "environ").read_bytes().decode()
        return dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)

    return wait_until(found, "the container's environment")


@pytest.mark.parametrize(
    ("resources", "named", "injected"),
    [
        pytest.param({}, 1, None, id="no request"),
        pytest.param({"example.com/fuse": 1}, 1, None, id="another resource"),
        pytest.param({CORE: 100}, 2, None, id="one requested, two in the annotation"),
        pytest.param({CORE: 100}, 1, "0", id="one requested"),
        pytest.param({CORE: 200}, 2, "0,1", id="two requested"),
    ],
)
def test_t3_the_koordinator_allocation_is_injected_only_for_its_resource(
    kube: Cluster,
    watch: Watch,
    resources: dict[str, int],
    named: int,
    injected: str | None,
) -> None:
    podgpu = watch("pods", "nri", options=INJECTING)
    kube.plugin(["fuse-0"], resource="example.com/fuse", form=lambda _: {})
    asking: Any = container(resources=resources)
    made = kube.run(pod("train-0", asking, annotations=allocated(*IDS[:named])))
    assert environment(made).get(VISIBLE) == injected
    stay(podgpu, dict.fromkeys(IDS[:named], made) if injected else {})


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", CORE])
def test_t3_a_gpu_that_another_pod_holds_is_not_injected(
    kube: Cluster, tmp_path: Path, watch: Watch, resource: str
) -> None:
    plugin = kube.plugin(IDS, form=by_nodes(MINORS, tmp_path / "nodes"))
    podgpu = watch("nri", *ALL, options=INJECTING)
    victim = kube.run(gpu_pod("victim"))
    a = given(plugin)
    podgpu.wait_owners({a: [owner(victim)]})
    asking = container(resources={resource: 100 if resource == CORE else 1})
    evil = kube.run(pod("evil", asking, annotations=allocated(a)))
    assert VISIBLE not in environment(evil)
