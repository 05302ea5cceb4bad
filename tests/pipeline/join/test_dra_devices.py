"""A resource claim keeps the device that its name meant when it was given out."""

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
from tests.pipeline.join.cluster import GPUS, A, B, Cluster, pod, said, uid_of
from tests.support.nodes import at

POOL = "gpu.nvidia.com/node-1/"
FIRST = {"gpu-0": A, "gpu-1": B}
SWAPPED = {"gpu-0": B, "gpu-1": A}
CLAIM_UID = "dab5ab50-d59a-42a6-af16-cfd4628c0f7a"


def dra(device: str) -> RawDeviceId:
    return RawDeviceId("dra", POOL + device)


def names(devices: Mapping[str, str], since: float | None) -> DeviceAliasesReplaced:
    given_out = sorted((dra(device), what) for device, what in devices.items())
    when = None if since is None else at(since)
    return DeviceAliasesReplaced(tuple(given_out), tuple((raw, when) for raw, _ in given_out))


def prepared(name: str, device: str, resource_claim: str = "") -> Claim:
    """The kubelet's word on a claim."""
    ref = PartialRef("ml", name, "main")
    made = said(Evidence.KUBELET_IDS, ref, [POOL + device], "dra")
    return replace(made, resource_claim=f"ml/{resource_claim or 'claim-of-' + name}")


def injected(name: str, device: str, claim_uid: str = CLAIM_UID) -> Claim:
    """The runtime's word on a claim."""
    ref = PartialRef("ml", name, "main", uid_of(name))
    text = f"k8s.gpu.nvidia.com/claim={claim_uid}-{device}"
    return said(Evidence.RUNTIME_CDI, ref, [text], "cdi")


class Dra(Cluster):
    """A node whose slices are told by the source of pods."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[str, Pod] = {}

    def slices(self, devices: Mapping[str, str], since: float | None, when: float) -> None:
        self.seconds = when
        self.tell("pods", names(devices, since))

    def begins(self, name: str, started: float | None, when: float, uid: str = "") -> None:
        self.seconds = when
        self.there[name] = pod(name, uid=uid, started=started)
        self.pods(*self.there.values())

    def ends(self, name: str, when: float) -> None:
        self.seconds = when
        del self.there[name]
        self.pods(*self.there.values())

    def prepare(self, when: float, *held: Claim) -> None:
        self.seconds = when
        self.kubelet(*held)

    def unresolved(self) -> list[str]:
        return [raw.text for raw in self.snapshot().sources["kubelet"].unresolved]


def running() -> Dra:
    """Slices since 0, a pod that began at 10 with gpu-1."""
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.begins("py", 10, 11)
    node.prepare(12, prepared("py", "gpu-1"))
    assert node.held() == {B: ["py/main"]}
    return node


AFTERWARDS: dict[str, list[tuple[Mapping[str, str], float]]] = {
    "renumbered": [(SWAPPED, 20)],
    "renumbered, and back": [(SWAPPED, 20), (FIRST, 30)],
    "another device under the name": [({"gpu-0": A, "gpu-1": GPUS[2].uuid}, 20)],
    "the name is withdrawn": [({"gpu-0": A}, 20)],
    "all are withdrawn": [({}, 20)],
    "withdrawn, and published again": [({}, 20), (FIRST, 30)],
    "withdrawn, and published in another order": [({}, 20), (SWAPPED, 30)],
    "renumbered often": [({"gpu-1": GPUS[n % 2].uuid}, 20.0 + n) for n in range(60)],
}


@pytest.mark.parametrize("story", AFTERWARDS.values(), ids=AFTERWARDS.keys())
def test_t15_a_claim_keeps_its_device_whatever_becomes_of_the_slices(
    story: list[tuple[Mapping[str, str], float]],
) -> None:
    node = running()
    [before] = node.on(B).holders
    for devices, when in story:
        node.slices(devices, when, when + 0.1)
        assert node.held() == {B: ["py/main"]}
        assert node.conflicts() == {}
        assert node.unresolved() == []
        assert node.on(B).holders == (before,)
        node.prepare(when + 0.2, prepared("py", "gpu-1"))
        assert node.on(B).holders == (before,)


def test_t15_two_pods_do_not_swap_devices_when_the_names_do() -> None:
    node = running()
    node.begins("pz", 13, 14)
    node.prepare(15, prepared("py", "gpu-1"), prepared("pz", "gpu-0"))
    before = {uuid: node.on(uuid).holders for uuid in (A, B)}
    node.slices(SWAPPED, 20, 20.1)
    assert node.held() == {A: ["pz/main"], B: ["py/main"]}
    assert {uuid: node.on(uuid).holders for uuid in (A, B)} == before
    node.tell("gpus", XidsReported((XidReport(B, "", 31, at(21)),)))
    [error] = node.snapshot().xids
    assert [victim.subject.pod for victim in error.victims] == ["py"]


def test_t15_the_runtimes_name_of_a_claim_follows_the_same_rule() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.begins("py", 10, 11)
    node.runtime(injected("py", "gpu-1"))
    for devices, when in ((SWAPPED, 20.0), ({}, 30.0), (SWAPPED, 40.0)):
        node.slices(devices, when, when)
        assert node.held() == {B: ["py/main"]}


def test_t15_a_new_pod_of_the_name_means_the_new_device() -> None:
    node = running()
    node.slices(SWAPPED, 20, 20.1)
    node.ends("py", 30)
    node.begins("py", 32, 33, uid="another")
    node.prepare(34, prepared("py", "gpu-1"))
    assert node.held() == {A: ["py/main"]}


def test_t15_a_claim_that_is_heard_of_late_means_what_the_name_meant_at_its_start() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.begins("py", 10, 11)
    node.slices(SWAPPED, 15, 15.1)
    node.prepare(20, prepared("py", "gpu-1"))
    assert node.held() == {B: ["py/main"]}


def test_t15_pods_of_one_claim_have_one_device() -> None:
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.begins("py", 10, 11)
    node.prepare(12, prepared("py", "gpu-1", "shared"))
    node.slices(SWAPPED, 20, 20.1)
    node.begins("pz", 30, 31)
    both = (prepared("pz", "gpu-1", "shared"), prepared("py", "gpu-1", "shared"))
    node.prepare(32, *both)
    assert node.held() == {B: ["py/main", "pz/main"]}
    node.ends("py", 40)
    node.prepare(41, both[0])
    assert node.held() == {B: ["pz/main"]}


def test_t15_an_outage_of_the_api_server_costs_no_claim_its_device() -> None:
    node = running()
    node.slices(SWAPPED, 20, 20.1)
    for when in range(30, 1200, 10):
        node.prepare(when, prepared("py", "gpu-1"))
        if when == 30:
            node.tell("pods", SourceLost("away"))
        assert node.held() == {B: ["py/main"]}
    node.begins("py", 10, 1200)
    assert node.held() == {B: ["py/main"]}


# What podgpu finds when it starts at 100: since when the slice is as it is, when the pod began.
AT_THE_START: dict[str, tuple[float | None, float, bool]] = {
    "unchanged": (0, 10, True),
    "in the same second": (10, 10, True),
    "changed after the pod began": (50, 10, False),
    "changed before the pod began": (50, 60, True),
    "nobody knows": (None, 10, False),
}


@pytest.mark.parametrize(
    ("since", "started", "known"), AT_THE_START.values(), ids=AT_THE_START.keys()
)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_t15_after_a_restart_the_name_counts_where_its_slice_has_not_changed(
    since: float | None, started: float, known: bool, order: int
) -> None:
    node = Dra()
    steps: list[Callable[[], None]] = [
        lambda: node.slices(FIRST, since, 100),
        lambda: node.begins("py", started, 100),
        lambda: node.prepare(100, prepared("py", "gpu-1")),
    ]
    for step in steps[order:] + steps[:order]:
        step()
    assert node.held() == ({B: ["py/main"]} if known else {})
    assert node.unresolved() == ([] if known else [POOL + "gpu-1"])
    # What isn't known may be any device: none is known to be free.
    assert node.join.holders_known is known


def test_t15_after_a_restart_the_time_of_the_allocation_counts_where_it_is_known() -> None:
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
        given_out = replace(
            made,
            allocated=None if allocated is None else at(allocated),
            own=own,
            created=at(created),
        )
        node.pods(replace(pod("py", started=50), resource_claims=(given_out,)))
        node.prepare(100, prepared("py", "gpu-1", "shared"))
        assert node.held() == ({B: ["py/main"]} if known else {}), (allocated, own, created)


def test_t15_admin_access_holds_nothing() -> None:
    admin = ResourceClaim("admin", CLAIM_UID, admin=(dra("gpu-1"),))
    node = Dra()
    node.slices(FIRST, 0, 1)
    node.pods(pod("py", started=10), replace(pod("watch", started=11), resource_claims=(admin,)))
    node.prepare(12, prepared("py", "gpu-1"), prepared("watch", "gpu-1", "admin"))
    node.runtime(injected("watch", "gpu-1"))
    assert node.held() == {B: ["py/main"]}
    assert [one.subject.pod for one in node.on(B).access] == ["watch"]
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
        act = rng.choice(["slices", "slices", "begin", "begin", "end"])
        if act == "slices":
            rng.shuffle(uuids)
            meaning = {f"gpu-{n}": uuid for n, uuid in enumerate(uuids) if rng.random() < 0.8}
            node.slices(meaning, rng.choice([second, None]), second)
        elif act == "end" and held:
            name = rng.choice(sorted(held))
            node.ends(name, second)
            del held[name], taken[name]
        elif act == "begin":
            free = sorted(
                device
                for device, uuid in meaning.items()
                if device not in taken.values() and uuid not in held.values()
            )
            name = rng.choice("abcd")
            if free and name not in held:
                taken[name] = rng.choice(free)
                held[name] = meaning[taken[name]]
                node.begins(name, second + 1, second + 1, uid=f"{name}-{number}")
        second += 3
        node.prepare(second, *(prepared(n, device) for n, device in sorted(taken.items())))
        assert node.held() == {uuid: [f"{name}/main"] for name, uuid in held.items()}
