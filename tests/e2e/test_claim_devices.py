"""T15: a claim keeps the device that its device name meant at the allocation.

API server, scheduler, kubelet, containerd and the DRA protocol are real, the GPUs are simulated.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.accounts import HELD, Growth
from tests.e2e.kube import access
from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.dra import DraDriver
from tests.e2e.kube.pods import container, pod
from tests.e2e.processes import wait_until
from tests.e2e.scenes import distinct
from tests.e2e.watched_podgpu import OFTEN, Owner, WatchedPodgpu, watching

SCENE = distinct()
A, B, C, D = (gpu.uuid for gpu in SCENE.gpus)
FIRST = {"gpu-0": A, "gpu-1": B, "gpu-2": C, "gpu-3": D}
RENUMBERED = {"gpu-0": B, "gpu-1": A, "gpu-2": D, "gpu-3": C}
ADMIN = "resource.kubernetes.io/admin-access"
"""A label of a namespace."""
OPTIONS = {**OFTEN, "nvml": {**OFTEN["nvml"], "usage_interval": "1s"}}
KINDS = ("podresources", "pods")
SECOND = 1.1
"""A little more than the resolution of the API server's timestamps."""

SINCE = "podgpu_device_holder_since_timestamp_seconds"


@contextmanager
def watch(kube: Cluster, folder: Path) -> Iterator[WatchedPodgpu]:
    """Run a podgpu with the sources that report claims."""
    with watching(kube, folder / "podgpu", SCENE, KINDS, options=OPTIONS) as podgpu:
        yield podgpu


@pytest.fixture
def driver(kube: Cluster) -> DraDriver:
    made = kube.dra_driver(FIRST)
    time.sleep(SECOND)  # the meaning of a name is unknown in the second of its publication
    return made


def user(kube: Cluster, driver: DraDriver, name: str, uuid: str) -> Object:
    """Run a pod with a claim for this device."""
    driver.claim(name, uuid=uuid)
    made = pod(name, container(claims=["gpu"]), claims={"gpu": name}, scheduled=True)
    return kube.run(made)


def owner(made: Object) -> Owner:
    meta = made["metadata"]
    return Owner(meta["name"], "main", meta["uid"], meta["namespace"])


def free(podgpu: WatchedPodgpu) -> set[str] | None:
    """Return the free devices according to `/topology`; None while this is unknown."""
    gpus = podgpu.topology()["gpus"]
    if any("state" not in gpu for gpu in gpus):
        return None
    return {gpu["uuid"] for gpu in gpus if gpu["state"] == "free"}


def conflicts(podgpu: WatchedPodgpu) -> float:
    return sum(value for _, value in podgpu.of("podgpu_attribution_conflicts"))


def since(podgpu: WatchedPodgpu) -> Mapping[str, float]:
    return {labels["UUID"]: value for labels, value in podgpu.of(SINCE)}


def unresolved(podgpu: WatchedPodgpu) -> float:
    return sum(value for _, value in podgpu.of("podgpu_unresolved_device_ids_total"))


def test_t15_claims_keep_their_devices_while_names_change(
    kube: Cluster, driver: DraDriver, tmp_path: Path
) -> None:
    with watch(kube, tmp_path) as podgpu:
        x, y = user(kube, driver, "x", A), user(kube, driver, "y", B)
        owners = {A: {owner(x)}, B: {owner(y)}}
        podgpu.wait_owners(owners)
        began = since(podgpu)
        time.sleep(SECOND)

        driver.renumber(RENUMBERED)
        podgpu.stays(lambda: podgpu.owners() == owners, 2)
        grown = Growth(podgpu, 2)
        assert (grown.held(A, "x"), grown.held(B, "y")) == pytest.approx((1, 1))

        # The slice is deleted and published again.
        driver.withdraw()
        podgpu.stays(lambda: podgpu.owners() == owners, 1)
        driver.generation += 1
        driver.publish()
        podgpu.stays(lambda: podgpu.owners() == owners, 1)
        assert free(podgpu) == {C, D}

        # The next pod gets the device that the name means now: `gpu-2` was C.
        time.sleep(SECOND)
        z = user(kube, driver, "z", D)
        claim = kube.api.get("ResourceClaim", "z", "default")
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["device"] == "gpu-2"
        podgpu.wait_owners({**owners, D: {owner(z)}})

        true = [(A, owner(x)), (B, owner(y)), (D, owner(z))]
        assert podgpu.recorder.wrong_holders(true) == set()
        assert {device: since(podgpu)[device] for device in began} == began
        assert podgpu.of(HELD, UUID=A, pod="y") == podgpu.of(HELD, UUID=B, pod="x") == []
        assert (conflicts(podgpu), unresolved(podgpu)) == (0, 0)


def test_t15_after_a_restart_a_device_name_is_valid_only_if_unchanged(
    kube: Cluster, driver: DraDriver, tmp_path: Path
) -> None:
    with watch(kube, tmp_path) as podgpu:
        x, y = user(kube, driver, "x", A), user(kube, driver, "y", B)
        owners = {A: {owner(x)}, B: {owner(y)}}
        podgpu.wait_owners(owners)
        time.sleep(SECOND)

        # Nothing has changed since: the new podgpu attributes the same devices.
        assert podgpu.stop() == 0
        podgpu.start()
        podgpu.wait_owners(owners)
        assert free(podgpu) == {C, D}
        assert unresolved(podgpu) == 0

        # The names change while podgpu does not run: then the devices are unknown.
        assert podgpu.stop() == 0
        driver.renumber(RENUMBERED)
        podgpu.start()
        wait_until(lambda: unresolved(podgpu) == 2, "two unresolved ids")
        podgpu.stays(lambda: podgpu.owners() == {}, 1)
        assert free(podgpu) is None
        assert conflicts(podgpu) == 0
        assert podgpu.recorder.wrong_holders([(A, owner(x)), (B, owner(y))]) == set()


def test_admin_access_is_not_a_holding(kube: Cluster, driver: DraDriver, tmp_path: Path) -> None:
    namespace = "monitoring"
    access.add_namespace(kube.api, namespace)
    kube.api.patch("Namespace", namespace, {"metadata": {"labels": {ADMIN: "true"}}})
    with watch(kube, tmp_path) as podgpu:
        x = user(kube, driver, "x", A)
        podgpu.wait_owners({A: {owner(x)}})
        driver.claim("all", uuid=A, namespace=namespace, admin=True)
        looking = pod(
            "looking",
            container(claims=["gpu"]),
            namespace=namespace,
            claims={"gpu": "all"},
            scheduled=True,
        )
        kube.run(looking)
        claim = kube.api.get("ResourceClaim", "all", namespace)
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert (result["device"], result["adminAccess"]) == ("gpu-0", True)
        podgpu.stays(lambda: podgpu.owners() == {A: {owner(x)}}, 3)
        assert podgpu.recorder.wrong_holders([(A, owner(x))]) == set()
        assert free(podgpu) == {B, C, D}
        assert (conflicts(podgpu), unresolved(podgpu)) == (0, 0)
        assert Growth(podgpu, 2).held(A, "x") == pytest.approx(1)
