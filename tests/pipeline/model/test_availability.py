"""What is free: by holders, shares, replicas and MIG instances; incremental as well as anew."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Attribution, Device, Evidence, Holder, PartialRef
from pipeline.model.availability import Availability, availability
from pipeline.topology import build
from tests.pipeline.topology.layouts import NODE, SYS, hgx, pcie
from tests.support.nodes import START, Node, claim, gpu, kubelet_claim, mig


def holder(pod: str, share: float | None = None, *replicas: str) -> Holder:
    subject = PartialRef("ml", pod, "main")
    return Holder(subject, share, START, "kubelet", Evidence.KUBELET_IDS, replicas=replicas)


def held(device: Device, *holders: Holder, present: bool = True) -> Attribution:
    return Attribution(device, present, holders)


def by_uuid(*attributions: Attribution) -> dict[str, Attribution]:
    return {a.device.uuid: a for a in attributions}


GPU = gpu(0)
ONE, TWO = mig(GPU, 1, profile="3g.40gb"), mig(GPU, 2, profile="1g.10gb")
ODD = mig(GPU, 3, profile="")


@pytest.mark.parametrize(
    ("attributions", "state", "free_share"),
    [
        ([], "absent", 0),
        ([held(GPU, present=False)], "absent", 0),
        ([held(GPU, holder("a"), present=False)], "absent", 0),
        ([held(GPU)], "free", 1),
        ([held(GPU, holder("a", 1))], "held", 0),
        ([held(GPU, holder("a"))], "held", 0),
        ([held(GPU, holder("a"), holder("b"))], "held", 0),
        ([held(GPU, holder("a", 0.5))], "part", 0.5),
        ([held(GPU, holder("a", 0.5), holder("b", 0.25))], "part", 0.25),
        ([held(GPU, *(holder(str(n), 0.1) for n in range(10)))], "held", 0),
        ([held(GPU, holder("a", 0.5), holder("b"))], "held", 0),
        ([held(GPU, holder("a", None, "0"))], "part", None),
        ([held(GPU, holder("a", None, "0"), holder("b", 0.5))], "part", None),
        ([held(GPU, holder("a", 0.5, "0", "1"))], "part", 0.5),
        ([held(GPU), held(ONE), held(TWO)], "free", 1),
        ([held(GPU), held(ONE, holder("a")), held(TWO)], "part", 0.25),
        ([held(GPU), held(ONE), held(TWO, holder("a"))], "part", 0.75),
        ([held(GPU), held(ONE, holder("a", 0.5)), held(TWO)], "part", 0.625),
        ([held(GPU), held(ONE, holder("a", None, "0")), held(TWO)], "part", None),
        ([held(GPU), held(ONE, holder("a")), held(TWO, holder("b"))], "part", 0),
        ([held(GPU), held(ONE, holder("a")), held(ODD)], "part", None),
        ([held(GPU, holder("a", 0.5)), held(ONE, holder("b"))], "part", None),
        ([held(GPU, holder("a")), held(ONE, holder("b"))], "held", 0),
    ],
)
def test_states(attributions: list[Attribution], state: str, free_share: float | None) -> None:
    found = availability(hgx(1), by_uuid(*attributions))
    (use,) = found.cards
    assert (use.state, use.free_share) == (state, free_share)
    masks = {"free": found.free, "part": found.part, "held": found.held}
    assert masks == {name: int(name == state) for name in masks}


def test_slices_of_a_compute_instance_are_its_own() -> None:
    part, rest = mig(GPU, 1, 0, "1c.3g.40gb"), mig(GPU, 1, 1, "2c.3g.40gb")
    found = availability(hgx(1), by_uuid(held(GPU), held(part, holder("a")), held(rest)))
    assert found.cards[0].free_share == pytest.approx(2 / 3)


def test_holders_are_reported_with_what_they_hold() -> None:
    found = availability(hgx(1), by_uuid(held(GPU), held(ONE, holder("a")), held(TWO)))
    assert [(uuid, h.subject.pod) for uuid, h in found.cards[0].holders] == [(ONE.uuid, "a")]


def test_every_group_has_its_free_mask() -> None:
    topology = pcie()
    uses = by_uuid(*(held(gpu(n), *([holder("a")] if n in {1, 6, 7} else [])) for n in range(8)))
    found = availability(topology, uses)
    assert found.free == 0b0011_1101
    assert [found.free_of(node) for node in topology.levels[NODE]] == [0b1101, 0b0011_0000]
    assert found.largest(topology.levels[NODE]) == 3
    assert found.largest(topology.levels[SYS]) == 5
    assert found.largest(topology.domains) == 0


def test_the_same_while_nothing_changes() -> None:
    topology = pcie()
    before = availability(topology, by_uuid(*(held(gpu(n)) for n in range(8))))
    again = availability(topology, by_uuid(*(held(gpu(n)) for n in range(8))), before)
    assert again is before
    changed = by_uuid(*(held(gpu(n), *([holder("a")] if n == 3 else [])) for n in range(8)))
    after = availability(topology, changed, before)
    assert after.free == 0xF7
    assert [a is b for a, b in zip(after.cards, before.cards, strict=True)] == [
        n != 3 for n in range(8)
    ]


def test_another_topology_is_counted_again() -> None:
    before = availability(pcie(), by_uuid(*(held(gpu(n)) for n in range(8))))
    fewer = pcie(4)
    after = availability(fewer, by_uuid(*(held(gpu(n)) for n in range(8))), before)
    assert after.topology is fewer
    assert after.free == 0b1111


DEVICES = [d for n in range(4) for d in (gpu(n), mig(gpu(n), 1), mig(gpu(n), 2, profile="2g.20gb"))]
HOLDERS = st.lists(
    st.builds(
        holder,
        st.sampled_from("abc"),
        st.sampled_from([None, 0.25, 0.5, 1.0]),
        st.sampled_from(["0", "1"]),
    )
    | st.builds(holder, st.sampled_from("abc"), st.sampled_from([None, 0.25, 0.5, 1.0])),
    max_size=2,
).map(tuple)
CHANGES = st.lists(
    st.tuples(st.sampled_from(DEVICES), st.sampled_from(["gone", "lost", "there"]), HOLDERS),
    max_size=20,
)


@given(CHANGES)
def test_incremental_equals_recomputation(
    changes: list[tuple[Device, str, tuple[Holder, ...]]],
) -> None:
    topology = build(pcie(4).read)
    now: dict[str, Attribution] = {}
    kept: Availability | None = None
    for device, what, holders in changes:
        if what == "gone":
            now.pop(device.uuid, None)
        else:
            now[device.uuid] = Attribution(device, what == "there", holders)
        known: Mapping[str, Attribution] = {
            d.uuid: replace(now[d.uuid]) for d in DEVICES if d.uuid in now
        }
        kept = availability(topology, known, kept)
        assert kept == availability(topology, known)
        assert kept.free & kept.part == kept.free & kept.held == kept.part & kept.held == 0


def test_with_the_join_s_own_attributions() -> None:
    node = Node()
    gpus = [gpu(n) for n in range(4)]
    instances = [mig(gpus[3], 1), mig(gpus[3], 2)]
    node.has(*gpus, *instances)
    topology = hgx(4)
    states = []
    found: Availability | None = None
    for said in (
        [],
        [kubelet_claim("a", gpus[0].uuid)],
        [kubelet_claim("a", gpus[0].uuid), claim("b", gpus[1].uuid, share=0.25)],
        [kubelet_claim("c", f"{gpus[2].uuid}::1")],
        [kubelet_claim("d", instances[1].uuid, resource="nvidia.com/mig-1g.10gb")],
    ):
        node.podlist(*said)
        found = availability(topology, node.snapshot().layout.attributions, found)
        states.append([use.state for use in found.cards])
    assert states == [
        ["free", "free", "free", "free"],
        ["held", "free", "free", "free"],
        ["held", "part", "free", "free"],
        ["free", "free", "part", "free"],
        ["free", "free", "free", "part"],
    ]
    node.seconds += 1
    node.has(*gpus[1:], *instances)
    found = availability(topology, node.snapshot().layout.attributions, found)
    assert found.cards[0].state == "absent"
    assert not found.free & 1
