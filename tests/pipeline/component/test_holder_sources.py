"""The reason why it is unknown which GPUs are free."""

import pytest

from pipeline.component.holder_sources import (
    LISTING_KINDS,
    availability_unknown_reason,
    lists_holders,
    topology_down_reason,
)
from pipeline.component.kind import Kind
from pipeline.component.registry import KINDS
from pipeline.model import NS, ContainersReplaced, PodsReplaced, SourceAdded, SourceLost
from tests.support.nodes import Node, claims, gpu, kubelet_claim, uuid_of
from tests.support.topology import topology_read

GPUS = [gpu(0), gpu(1)]


def node_with_topology() -> Node:
    node = Node()
    node.has(*GPUS)
    node.say(topology_read(*GPUS))
    return node


def test_the_listing_kinds_are_registered_sources() -> None:
    assert {("source", kind) for kind in LISTING_KINDS} <= KINDS.keys()


@pytest.mark.parametrize(
    ("kind", "entry"),
    [(kind, entry) for (role, kind), entry in KINDS.items() if role == "source"],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_source_lists_all_holders_according_to_its_registry_entry(kind: str, entry: Kind) -> None:
    node = node_with_topology()
    node.say(SourceAdded(1), "who", kind)
    assert lists_holders(node.snapshot()) == (entry.holders in {"all", "relayed"})
    # A relaying source has no claims of its own, so no message recommends to add it.
    assert (kind in LISTING_KINDS) == (entry.holders == "all")
    assert bool(availability_unknown_reason(node.snapshot())) == (entry.holders in {"some", "all"})


def test_a_recording_can_contain_the_claims_of_any_source() -> None:
    assert [kind for (_, kind), entry in KINDS.items() if entry.holders == "relayed"] == ["replay"]


def test_there_is_no_reason_if_the_holders_are_known_or_there_is_no_topology() -> None:
    node = node_with_topology()
    assert availability_unknown_reason(node.snapshot()) == ""
    assert not lists_holders(node.snapshot())
    node.podlist()
    assert (
        availability_unknown_reason(node.snapshot()) == topology_down_reason(node.snapshot()) == ""
    )
    assert lists_holders(node.snapshot())
    assert availability_unknown_reason(Node().snapshot()) == ""


@pytest.mark.parametrize("kind", sorted(LISTING_KINDS))
def test_the_reason_names_a_listing_source_that_is_down_or_has_not_reported(kind: str) -> None:
    node = node_with_topology()
    node.say(SourceAdded(1), "who", kind)
    start = "no source that lists all holders is up: who: "
    assert availability_unknown_reason(node.snapshot()) == start + "has not reported yet"
    node.say(SourceLost("no such socket"), "who", kind)
    assert availability_unknown_reason(node.snapshot()) == start + "no such socket"


@pytest.mark.parametrize("missing", ["kubelet", "docker"])
def test_next_to_a_kubelet_both_the_pods_and_the_containers_are_needed(missing: str) -> None:
    node = node_with_topology()
    node.say(SourceAdded(1, ("claims",)), "kubelet", "podresources")
    node.say(SourceAdded(2, ("owners",)), "docker", "docker")
    if missing == "docker":
        node.say(claims(), "kubelet", "podresources")
    else:
        node.say(ContainersReplaced((), 300 * NS), "docker", "docker")
    assert availability_unknown_reason(node.snapshot()) == (
        "pods, jobs and containers without pods can hold GPUs, and not all are known: "
        f"{missing}: has not reported yet"
    )


def test_pods_is_not_a_source_of_all_holders() -> None:
    node = node_with_topology()
    node.say(PodsReplaced((), NS), "pods", "pods")
    assert availability_unknown_reason(node.snapshot()).startswith(
        "source pods does not report all containers that hold"
    )


def test_an_unresolved_id_is_a_reason() -> None:
    node = node_with_topology()
    node.say(claims(kubelet_claim("a", "unknown-id")), "kubelet", "podresources")
    message = availability_unknown_reason(node.snapshot())
    assert "ids that match no GPU of this node" in message
    assert "'unknown-id'" in message
    node.say(claims(kubelet_claim("a", uuid_of(0))), "kubelet", "podresources")
    assert availability_unknown_reason(node.snapshot()) == ""


def test_the_source_of_the_topology_that_is_down_is_a_reason() -> None:
    node = node_with_topology()
    node.podlist()
    node.say(SourceLost("no driver"))
    expected = "the source gpus, which reported the topology, is down: no driver"
    assert (
        topology_down_reason(node.snapshot())
        == availability_unknown_reason(node.snapshot())
        == expected
    )
