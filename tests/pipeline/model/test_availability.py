"""Which GPUs are free, by holders, shares, replicas and MIG instances, also incrementally."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Attribution, Device, Evidence, Holder, PartialRef
from pipeline.model.availability import Availability, availability
from pipeline.topology.tree_builder import build
from tests.pipeline.topology.layouts import NODE, SYS, hgx, pcie
from tests.support.nodes import START, Node, claim, gpu, kubelet_claim, mig


def holder(pod: str, share: float | None = None, *replicas: str) -> Holder:
    subject = PartialRef("ml", pod, "main")
    return Holder(subject, share, START, "kubelet", Evidence.KUBELET_IDS, replicas=replicas)


def attribution(device: Device, *holders: Holder, present: bool = True) -> Attribution:
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
        ([attribution(GPU, present=False)], "absent", 0),
        ([attribution(GPU, holder("a"), present=False)], "absent", 0),
        ([attribution(GPU)], "free", 1),
        ([attribution(GPU, holder("a", 1))], "held", 0),
        ([attribution(GPU, holder("a"))], "held", 0),
        ([attribution(GPU, holder("a"), holder("b"))], "held", 0),
        ([attribution(GPU, holder("a", 0.5))], "part", 0.5),
        ([attribution(GPU, holder("a", 0.5), holder("b", 0.25))], "part", 0.25),
        ([attribution(GPU, *(holder(str(n), 0.1) for n in range(10)))], "held", 0),
        ([attribution(GPU, holder("a", 0.5), holder("b"))], "held", 0),
        ([attribution(GPU, holder("a", None, "0"))], "part", None),
        ([attribution(GPU, holder("a", None, "0"), holder("b", 0.5))], "part", None),
        ([attribution(GPU, holder("a", 0.5, "0", "1"))], "part", 0.5),
        ([attribution(GPU), attribution(ONE), attribution(TWO)], "free", 1),
        ([attribution(GPU), attribution(ONE, holder("a")), attribution(TWO)], "part", 0.25),
        ([attribution(GPU), attribution(ONE), attribution(TWO, holder("a"))], "part", 0.75),
        ([attribution(GPU), attribution(ONE, holder("a", 0.5)), attribution(TWO)], "part", 0.625),
        (
            [attribution(GPU), attribution(ONE, holder("a", None, "0")), attribution(TWO)],
            "part",
            None,
        ),
        (
            [attribution(GPU), attribution(ONE, holder("a")), attribution(TWO, holder("b"))],
            "part",
            0,
        ),
        ([attribution(GPU), attribution(ONE, holder("a")), attribution(ODD)], "part", None),
        ([attribution(GPU, holder("a", 0.5)), attribution(ONE, holder("b"))], "part", None),
        ([attribution(GPU, holder("a")), attribution(ONE, holder("b"))], "held", 0),
    ],
)
def test_holders_determine_the_state_and_the_free_share_of_a_gpu(
    attributions: list[Attribution], state: str, free_share: float | None
) -> None:
    found = availability(hgx(1), by_uuid(*attributions))
    (use,) = found.cards
    assert (use.state, use.free_share) == (state, free_share)
    masks = {"free": found.free, "part": found.part, "held": found.held}
    assert masks == {name: int(name == state) for name in masks}


def test_the_share_of_a_compute_instance_is_that_of_its_slices() -> None:
    part, rest = mig(GPU, 1, 0, "1c.3g.40gb"), mig(GPU, 1, 1, "2c.3g.40gb")
    found = availability(
        hgx(1), by_uuid(attribution(GPU), attribution(part, holder("a")), attribution(rest))
    )
    assert found.cards[0].free_share == pytest.approx(2 / 3)


def test_holders_are_shown_with_their_device() -> None:
    found = availability(
        hgx(1), by_uuid(attribution(GPU), attribution(ONE, holder("a")), attribution(TWO))
    )
    assert [(uuid, h.subject.pod) for uuid, h in found.cards[0].holders] == [(ONE.uuid, "a")]


def test_every_group_has_a_mask_of_its_free_gpus() -> None:
    topology = pcie()
    uses = by_uuid(
        *(attribution(gpu(n), *([holder("a")] if n in {1, 6, 7} else [])) for n in range(8))
    )
    found = availability(topology, uses)
    assert found.free == 0b0011_1101
    assert [found.free_of(node) for node in topology.levels[NODE]] == [0b1101, 0b0011_0000]
    assert found.largest(topology.levels[NODE]) == 3
    assert found.largest(topology.levels[SYS]) == 5
    assert found.largest(topology.domains) == 0


def test_an_unchanged_availability_is_the_same_object() -> None:
    topology = pcie()
    before = availability(topology, by_uuid(*(attribution(gpu(n)) for n in range(8))))
    again = availability(topology, by_uuid(*(attribution(gpu(n)) for n in range(8))), before)
    assert again is before
    changed = by_uuid(*(attribution(gpu(n), *([holder("a")] if n == 3 else [])) for n in range(8)))
    after = availability(topology, changed, before)
    assert after.free == 0xF7
    assert [a is b for a, b in zip(after.cards, before.cards, strict=True)] == [
        n != 3 for n in range(8)
    ]


def test_availability_is_computed_again_for_another_topology() -> None:
    before = availability(pcie(), by_uuid(*(attribution(gpu(n)) for n in range(8))))
    fewer = pcie(4)
    after = availability(fewer, by_uuid(*(attribution(gpu(n)) for n in range(8))), before)
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
def test_the_incremental_result_equals_a_complete_computation(
    changes: list[tuple[Device, str, tuple[Holder, ...]]],
) -> None:
    topology = build(pcie(4).read)
    now: dict[str, Attribution] = {}
    incremental: Availability | None = None
    for device, presence, holders in changes:
        if presence == "gone":
            now.pop(device.uuid, None)
        else:
            now[device.uuid] = Attribution(device, presence == "there", holders)
        known: Mapping[str, Attribution] = {
            d.uuid: replace(now[d.uuid]) for d in DEVICES if d.uuid in now
        }
        incremental = availability(topology, known, incremental)
        assert incremental == availability(topology, known)
        assert (
            incremental.free & incremental.part
            == incremental.free & incremental.held
            == incremental.part & incremental.held
            == 0
        )


def test_availability_with_attributions_of_the_join() -> None:
    node = Node()
    gpus = [gpu(n) for n in range(4)]
    instances = [mig(gpus[3], 1), mig(gpus[3], 2)]
    node.has(*gpus, *instances)
    topology = hgx(4)
    states = []
    found: Availability | None = None
    for reported in (
        [],
        [kubelet_claim("a", gpus[0].uuid)],
        [kubelet_claim("a", gpus[0].uuid), claim("b", gpus[1].uuid, share=0.25)],
        [kubelet_claim("c", f"{gpus[2].uuid}::1")],
        [kubelet_claim("d", instances[1].uuid, resource="nvidia.com/mig-1g.10gb")],
    ):
        node.podlist(*reported)
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
