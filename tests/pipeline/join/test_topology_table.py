"""The topology of the first source in order, and the free GPUs, in snapshots."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import (
    NS,
    ClaimsReplaced,
    ClockTicked,
    Device,
    Level,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    TopologyCard,
    TopologyPair,
    TopologyRead,
)
from pipeline.model.availability import availability
from pipeline.topology.tree_builder import build
from tests.support.nodes import Node, at, claim, claims, gpu, mig, reading

GPUS = tuple(gpu(index) for index in range(4))


def read(*devices: Device, level: Level = Level.NODE, nvlinks: int = 18) -> TopologyRead:
    """Return a topology in which every two of the GPUs have the same distance."""
    cards = tuple(TopologyCard(d.uuid, d.index, d.pci_bus_id, 0, (), nvlinks) for d in devices)
    pairs = tuple(
        TopologyPair(a.uuid, b.uuid, level, nvlinks, bool(nvlinks))
        for a, b in combinations(cards, 2)
    )
    return TopologyRead(cards, pairs)


def node_with_topology(*, claimed: bool = True) -> Node:
    node = Node()
    node.has(*GPUS)
    node.say(read(*GPUS))
    if claimed:
        node.podlist()
    return node


def free(node: Node) -> int | None:
    found = node.snapshot().availability
    return None if found is None else found.free


def test_without_a_source_there_is_no_topology() -> None:
    node = Node()
    node.has(*GPUS)
    node.podlist(claim("a", GPUS[0].uuid))
    assert (node.snapshot().topology, node.snapshot().availability) == (None, None)


def test_a_topology_is_in_the_snapshot_that_its_event_caused() -> None:
    node = Node()
    node.has(*GPUS)
    assert node.say(read(*GPUS))
    found = node.snapshot().topology
    assert found is not None
    assert found.links[0, 3] == (Level.NODE, 18)


def test_the_same_topology_again_stays_the_same_object() -> None:
    node = node_with_topology()
    before = node.snapshot()
    assert not node.say(read(*GPUS))
    after = node.snapshot()
    assert after.topology is before.topology is not None
    assert after.availability is before.availability is not None


def test_readings_leave_topology_and_availability_the_same_objects() -> None:
    node = node_with_topology()
    before = node.snapshot()
    for second in range(3):
        node.seconds += 1
        node.reads(*(reading(g, "power_watts", second, when=at(node.seconds)) for g in GPUS))
        after = node.snapshot()
        assert after.topology is before.topology
        assert after.availability is before.availability


def test_availability_is_in_the_snapshot_of_the_claim_that_changed_it() -> None:
    node = node_with_topology()
    before = node.snapshot()
    assert before.availability is not None
    assert before.availability.free == 0b1111
    assert node.say(claims(claim("a", GPUS[1].uuid, GPUS[2].uuid)), "podlist", "podlist")
    after = node.snapshot()
    assert after.availability is not None
    assert (after.availability.free, after.availability.held) == (0b1001, 0b0110)
    assert after.topology is before.topology
    assert after.availability.topology is after.topology


def test_a_claim_on_a_mig_instance_holds_part_of_its_gpu() -> None:
    node = Node()
    instance = mig(GPUS[0], 1)
    node.has(*GPUS, instance)
    node.say(read(*GPUS))
    node.podlist(claim("a", instance.uuid))
    found = node.snapshot().availability
    assert found is not None
    assert (found.free, found.part, found.held) == (0b1110, 0b0001, 0)


def test_availability_is_unknown_without_a_source_of_holders() -> None:
    node = node_with_topology(claimed=False)
    assert node.snapshot().topology is not None
    assert node.snapshot().availability is None
    node.podlist()
    assert free(node) == 0b1111


def test_availability_is_unknown_when_the_last_claims_have_expired() -> None:
    node = node_with_topology(claimed=False)
    node.say(claims(claim("a", GPUS[0].uuid), good_for=10), "podlist", "podlist")
    assert free(node) == 0b1110
    node.seconds += 11
    assert node.say(ClockTicked(), "", "clock")
    assert free(node) is None


def test_a_gpu_that_is_gone_is_not_free() -> None:
    node = node_with_topology()
    node.has(*GPUS[:3])
    assert free(node) == 0b0111
    node.say(read(*GPUS[:3]))
    topology = node.snapshot().topology
    assert topology is not None
    assert len(topology.cards) == 3


def test_the_topology_of_a_source_that_is_down_stays_and_availability_is_unknown() -> None:
    node = node_with_topology()
    before = node.snapshot()
    assert before.topology_is_current
    assert node.say(SourceLost("the driver is gone"))
    after = node.snapshot()
    assert after.topology is before.topology
    assert (after.topology_source, after.topology_is_current, after.availability) == (
        "gpus",
        False,
        None,
    )


def test_the_topology_is_removed_with_its_source() -> None:
    node = node_with_topology()
    node.say(SourceRemoved())
    assert (node.snapshot().topology, node.snapshot().availability) == (None, None)


def test_a_relayed_topology_is_removed_with_the_relaying_source() -> None:
    node = Node()
    node.say(SourceAdded(0), "player", "replay")
    node.has(*GPUS)
    node.say(read(*GPUS), "gpus", "nvml", via="player")
    assert node.snapshot().topology is not None
    node.say(SourceRemoved(), "player", "replay")
    assert node.snapshot().topology is None


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_the_topology_of_the_first_configured_source_is_shown(
    order: tuple[str, str],
) -> None:
    node = Node()
    topologies = {
        "first": read(*GPUS, level=Level.SINGLE),
        "second": read(*GPUS, level=Level.SYSTEM),
    }
    node.has(*GPUS)
    for number, name in enumerate(topologies):
        node.say(SourceAdded(number), name, "nvml")
    for name in order:
        node.say(topologies[name], name, "nvml")
    found = node.snapshot().topology
    assert found is not None
    assert found.links[0, 1].level is Level.SINGLE
    node.say(SourceRemoved(), "first", "nvml")
    found = node.snapshot().topology
    assert found is not None
    assert found.links[0, 1].level is Level.SYSTEM


def test_a_new_gpu_changes_the_topology() -> None:
    node = node_with_topology()
    before = node.snapshot().topology
    more = (*GPUS, gpu(4))
    node.has(*more)
    node.say(read(*more))
    after = node.snapshot().topology
    assert after is not before
    assert after is not None
    assert len(after.cards) == 5


UUIDS = [device.uuid for device in GPUS]
EVENTS = st.one_of(
    st.lists(
        st.builds(
            lambda pod, ids, share: claim(pod, *ids, share=share),
            st.sampled_from(["a", "b", "c"]),
            st.lists(st.sampled_from(UUIDS), max_size=2, unique=True),
            st.none() | st.sampled_from([0.25, 0.5, 1.0]),
        ),
        max_size=3,
    ).map(lambda made: ("podlist", ClaimsReplaced(tuple(made), 300 * NS))),
    st.integers(1, 4).map(lambda count: ("gpus", read(*GPUS[:count]))),
    st.sampled_from(list(Level)).map(lambda level: ("gpus", read(*GPUS, level=level))),
    st.just(("podlist", SourceRemoved())),
    st.just(("gpus", SourceRemoved())),
)


@given(st.lists(EVENTS, max_size=8))
@settings(deadline=None)
def test_topology_and_availability_follow_from_the_last_events(
    events: list[tuple[str, ClaimsReplaced | TopologyRead | SourceRemoved]],
) -> None:
    node = Node()
    node.has(*GPUS)
    node.say(SourceAdded(0))
    last: TopologyRead | None = None
    for source, event in events:
        node.say(event, source, source)
        if source == "gpus":
            last = event if isinstance(event, TopologyRead) else None
        snapshot = node.snapshot()
        if last is None:
            assert snapshot.topology is None
            continue
        assert snapshot.topology is not None
        assert snapshot.topology.read == build(last).read
        if snapshot.availability is not None:
            expected = availability(snapshot.topology, snapshot.layout.attributions)
            assert snapshot.availability == expected
