"""Why it isn't known what is free, in words for people."""

import pytest

from pipeline.component.holder_sources import (
    LISTING_KINDS,
    availability_unknown_reason,
    lists_holders,
    topology_down_reason,
)
from pipeline.component.registry import ENTRIES, Entry
from pipeline.model import NS, PodsReplaced, SourceAdded, SourceLost
from tests.support.joints import joints
from tests.support.nodes import Node, claims, gpu, kubelet_claim, uuid_of

GPUS = [gpu(0), gpu(1)]


def joined() -> Node:
    node = Node()
    node.has(*GPUS)
    node.say(joints(*GPUS))
    return node


def test_the_kinds_are_podgpu_s() -> None:
    assert {("source", kind) for kind in LISTING_KINDS} <= ENTRIES.keys()


@pytest.mark.parametrize(
    ("kind", "entry"),
    [(kind, entry) for (role, kind), entry in ENTRIES.items() if role == "source"],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_whether_a_source_may_list_all_holders_is_what_its_entry_says(
    kind: str, entry: Entry
) -> None:
    node = joined()
    node.say(SourceAdded(1), "who", kind)
    assert lists_holders(node.snapshot()) == (entry.holders in {"all", "relayed"})
    # Who only relays doesn't tell itself, and nobody is told to add it.
    assert (kind in LISTING_KINDS) == (entry.holders == "all")
    assert bool(availability_unknown_reason(node.snapshot())) == (entry.holders in {"some", "all"})


def test_a_recording_may_hold_the_word_of_any_source() -> None:
    assert [kind for (_, kind), entry in ENTRIES.items() if entry.holders == "relayed"] == [
        "replay"
    ]


def test_where_it_is_known_or_no_one_is_there_to_report() -> None:
    node = joined()
    assert availability_unknown_reason(node.snapshot()) == ""
    assert not lists_holders(node.snapshot())
    node.podlist()
    assert (
        availability_unknown_reason(node.snapshot()) == topology_down_reason(node.snapshot()) == ""
    )
    assert lists_holders(node.snapshot())
    assert availability_unknown_reason(Node().snapshot()) == ""


@pytest.mark.parametrize("kind", sorted(LISTING_KINDS))
def test_one_that_could_report_and_does_not(kind: str) -> None:
    node = joined()
    node.say(SourceAdded(1), "who", kind)
    start = "no source that lists all holders is up: who: "
    assert availability_unknown_reason(node.snapshot()) == start + "has not reported yet"
    node.say(SourceLost("no such socket"), "who", kind)
    assert availability_unknown_reason(node.snapshot()) == start + "no such socket"


def test_pods_alone() -> None:
    node = joined()
    node.say(PodsReplaced((), NS), "pods", "pods")
    assert availability_unknown_reason(node.snapshot()).startswith(
        "source pods does not report all containers that hold"
    )


def test_an_id_that_no_one_knows() -> None:
    node = joined()
    node.say(claims(kubelet_claim("a", "riddle")), "kubelet", "podresources")
    given_out = availability_unknown_reason(node.snapshot())
    assert "ids that match no GPU of this node" in given_out
    assert "'riddle'" in given_out
    node.say(claims(kubelet_claim("a", uuid_of(0))), "kubelet", "podresources")
    assert availability_unknown_reason(node.snapshot()) == ""


def test_a_driver_that_is_gone() -> None:
    node = joined()
    node.podlist()
    node.say(SourceLost("no driver"))
    given_out = "the source gpus, which reported the topology, is down: no driver"
    assert (
        topology_down_reason(node.snapshot())
        == availability_unknown_reason(node.snapshot())
        == given_out
    )
