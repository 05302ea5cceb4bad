"""A ResourceClaim keeps the device that its name meant when it was allocated."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import (
    Claim,
    DeviceAliasesReplaced,
    Evidence,
    PartialRef,
    Pod,
    RawDeviceId,
    ResourceClaim,
    SourceLost,
    XidReport,
    XidsReported,
)
from tests.pipeline.join.cluster import GPUS, A, B, Cluster, make_claim, pod, uid_of
from tests.support.nodes import at

POOL = "gpu.nvidia.com/node-1/"
FIRST = {"gpu-0": A, "gpu-1": B}
SWAPPED = {"gpu-0": B, "gpu-1": A}
CLAIM_UID = "dab5ab50-d59a-42a6-af16-cfd4628c0f7a"


def dra(device: str) -> RawDeviceId:
    return RawDeviceId("dra", POOL + device)


def names(devices: Mapping[str, str], since: float | None) -> DeviceAliasesReplaced:
    aliases = sorted((dra(device), uuid) for device, uuid in devices.items())
    when = None if since is None else at(since)
    return DeviceAliasesReplaced(tuple(aliases), tuple((raw, when) for raw, _ in aliases))


def prepared(name: str, device: str, resource_claim: str = "") -> Claim:
    """Return the kubelet's claim for a ResourceClaim."""
    ref = PartialRef("ml", name, "main")
    made = make_claim(Evidence.KUBELET_IDS, ref, [POOL + device], "dra")
    return replace(made, resource_claim=f"ml/{resource_claim or 'claim-of-' + name}")


def injected(name: str, device: str, claim_uid: str = CLAIM_UID) -> Claim:
    """Return the runtime's claim for a ResourceClaim."""
    ref = PartialRef("ml", name, "main", uid_of(name))
    text = f"k8s.gpu.nvidia.com/claim={claim_uid}-{device}"
    return make_claim(Evidence.RUNTIME_CDI, ref, [text], "cdi")


class Dra(Cluster):
    """A node on which the source of pods reports the ResourceSlices."""

    def __init__(self) -> None:
        super().__init__()
        self.present: dict[str, Pod] = {}

    def slices(self, devices: Mapping[str, str], since: float | None, when: float) -> None:
        self.seconds = when
        self.emit("pods", names(devices, since))

    def start_pod(self, name: str, started: float | None, when: float, uid: str = "") -> None:
        self.seconds = when
        self.present[name] = pod(name, uid=uid, started=started)
        self.pods(*self.present.values())

    def end_pod(self, name: str, when: float) -> None:
        self.seconds = when
        del self.present[name]
        self.pods(*self.present.values())

    def prepare(self, when: float, *held: Claim) -> None:
        self.seconds = when
        self.kubelet(*held)

    def unresolved(self) -> list[str]:
        return [raw.text for raw in self.snapshot().sources["kubelet"].unresolved]


def running_node() -> Dra:
    """Return a node with slices since 0, and a pod that started at 10 with gpu-1."""
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.start_pod("py", 10, 11)
    node.prepare(12, prepared("py", "gpu-1"))
    assert node.held() == {B: ["py/main"]}
    return node


CHANGES: dict[str, list[tuple[Mapping[str, str], float]]] = {
    "renumbered": [(SWAPPED, 20)],
    "renumbered, and back": [(SWAPPED, 20), (FIRST, 30)],
    "another device under the name": [({"gpu-0": A, "gpu-1": GPUS[2].uuid}, 20)],
    "name withdrawn": [({"gpu-0": A}, 20)],
    "all names withdrawn": [({}, 20)],
    "withdrawn, and published again": [({}, 20), (FIRST, 30)],
    "withdrawn, and published in another order": [({}, 20), (SWAPPED, 30)],
    "renumbered often": [({"gpu-1": GPUS[n % 2].uuid}, 20.0 + n) for n in range(60)],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_t15_a_claim_keeps_its_device_when_the_slices_change(
    changes: list[tuple[Mapping[str, str], float]],
) -> None:
    node = running_node()
    [before] = node.attribution(B).holders
    for devices, when in changes:
        node.slices(devices, when, when + 0.1)
        assert node.held() == {B: ["py/main"]}
        assert node.conflicts() == {}
        assert node.unresolved() == []
        assert node.attribution(B).holders == (before,)
        node.prepare(when + 0.2, prepared("py", "gpu-1"))
        assert node.attribution(B).holders == (before,)


def test_t15_two_pods_keep_their_devices_when_the_names_are_swapped() -> None:
    node = running_node()
    node.start_pod("pz", 13, 14)
    node.prepare(15, prepared("py", "gpu-1"), prepared("pz", "gpu-0"))
    before = {uuid: node.attribution(uuid).holders for uuid in (A, B)}
    node.slices(SWAPPED, 20, 20.1)
    assert node.held() == {A: ["pz/main"], B: ["py/main"]}
    assert {uuid: node.attribution(uuid).holders for uuid in (A, B)} == before
    node.emit("gpus", XidsReported((XidReport(B, "", 31, at(21)),)))
    [error] = node.snapshot().xids
    assert [victim.subject.pod for victim in error.victims] == ["py"]


def test_t15_a_device_in_the_runtime_s_claim_is_kept_too() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.start_pod("py", 10, 11)
    node.runtime(injected("py", "gpu-1"))
    for devices, when in ((SWAPPED, 20.0), ({}, 30.0), (SWAPPED, 40.0)):
        node.slices(devices, when, when)
        assert node.held() == {B: ["py/main"]}


def test_t15_a_new_pod_gets_the_device_that_the_name_means_now() -> None:
    node = running_node()
    node.slices(SWAPPED, 20, 20.1)
    node.end_pod("py", 30)
    node.start_pod("py", 32, 33, uid="another")
    node.prepare(34, prepared("py", "gpu-1"))
    assert node.held() == {A: ["py/main"]}


def test_t15_a_claim_that_is_reported_late_means_the_device_at_its_start() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.start_pod("py", 10, 11)
    node.slices(SWAPPED, 15, 15.1)
    node.prepare(20, prepared("py", "gpu-1"))
    assert node.held() == {B: ["py/main"]}


def test_t15_pods_that_share_a_claim_hold_the_same_device() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.start_pod("py", 10, 11)
    node.prepare(12, prepared("py", "gpu-1", "shared"))
    node.slices(SWAPPED, 20, 20.1)
    node.start_pod("pz", 30, 31)
    both = (prepared("pz", "gpu-1", "shared"), prepared("py", "gpu-1", "shared"))
    node.prepare(32, *both)
    assert node.held() == {B: ["py/main", "pz/main"]}
    node.end_pod("py", 40)
    node.prepare(41, both[0])
    assert node.held() == {B: ["pz/main"]}


def test_t15_a_claim_keeps_its_device_while_the_api_server_is_away() -> None:
    node = running_node()
    node.slices(SWAPPED, 20, 20.1)
    for when in range(30, 1200, 10):
        node.prepare(when, prepared("py", "gpu-1"))
        if when == 30:
            node.emit("pods", SourceLost("away"))
        assert node.held() == {B: ["py/main"]}
    node.start_pod("py", 10, 1200)
    assert node.held() == {B: ["py/main"]}


# podgpu starts at 100: last change of the slice, start of the pod, whether the device is known.
AT_THE_START: dict[str, tuple[float | None, float, bool]] = {
    "unchanged": (0, 10, True),
    "changed in the same second": (10, 10, True),
    "changed after the pod started": (50, 10, False),
    "changed before the pod started": (50, 60, True),
    "time of change unknown": (None, 10, False),
}


@pytest.mark.parametrize(
    ("since", "started", "known"), AT_THE_START.values(), ids=AT_THE_START.keys()
)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_t15_after_a_restart_a_name_counts_if_its_slice_has_not_changed(
    since: float | None, started: float, known: bool, order: int
) -> None:
    node = Dra()
    steps: list[Callable[[], None]] = [
        lambda: node.slices(FIRST, since, 100),
        lambda: node.start_pod("py", started, 100),
        lambda: node.prepare(100, prepared("py", "gpu-1")),
    ]
    for step in steps[order:] + steps[:order]:
        step()
    assert node.held() == ({B: ["py/main"]} if known else {})
    assert node.unresolved() == ([] if known else [POOL + "gpu-1"])
    # An unknown device may be any device: none is known to be free.
    assert node.join.holders_known is known


def test_t15_after_a_restart_the_time_of_the_allocation_counts_if_known() -> None:
    made = ResourceClaim("shared", "u", created=at(1), allocated=at(10))
    for allocated, own, created, known in (
        (10, False, 1, False),
        (40, False, 1, True),
        (None, False, 1, False),
        (None, False, 40, True),
        (None, True, 1, True),
    ):
        node = Dra()
        node.slices(FIRST, 30, 100)
        resource_claim = replace(
            made,
            allocated=None if allocated is None else at(allocated),
            own=own,
            created=at(created),
        )
        node.pods(replace(pod("py", started=50), resource_claims=(resource_claim,)))
        node.prepare(100, prepared("py", "gpu-1", "shared"))
        assert node.held() == ({B: ["py/main"]} if known else {}), (allocated, own, created)


def test_t15_admin_access_is_not_a_holding() -> None:
    admin = ResourceClaim("admin", CLAIM_UID, admin=(dra("gpu-1"),))
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.pods(pod("py", started=10), replace(pod("watch", started=11), resource_claims=(admin,)))
    node.prepare(12, prepared("py", "gpu-1"), prepared("watch", "gpu-1", "admin"))
    node.runtime(injected("watch", "gpu-1"))
    assert node.held() == {B: ["py/main"]}
    assert [one.subject.pod for one in node.attribution(B).access] == ["watch"]
    assert node.conflicts() == {}
    assert node.unresolved() == []


@given(st.integers(0))
def test_t15_the_device_of_a_live_claim_never_changes(seed: int) -> None:
    rng = Random(seed)
    node, held = Dra(), dict[str, str]()
    meaning: dict[str, str] = {}
    taken: dict[str, str] = {}
    second = 0.0
    uuids = [device.uuid for device in GPUS]
    for number in range(rng.randint(2, 25)):
        second += 3
        act = rng.choice(["slices", "slices", "start", "start", "end"])
        if act == "slices":
            rng.shuffle(uuids)
            meaning = {f"gpu-{n}": uuid for n, uuid in enumerate(uuids) if rng.random() < 0.8}
            node.slices(meaning, rng.choice([second, None]), second)
        elif act == "end" and held:
            name = rng.choice(sorted(held))
            node.end_pod(name, second)
            del held[name], taken[name]
        elif act == "start":
            free = sorted(
                device
                for device, uuid in meaning.items()
                if device not in taken.values() and uuid not in held.values()
            )
            name = rng.choice("abcd")
            if free and name not in held:
                taken[name] = rng.choice(free)
                held[name] = meaning[taken[name]]
                node.start_pod(name, second + 1, second + 1, uid=f"{name}-{number}")
        second += 3
        node.prepare(second, *(prepared(n, device) for n, device in sorted(taken.items())))
        assert node.held() == {uuid: [f"{name}/main"] for name, uuid in held.items()}
