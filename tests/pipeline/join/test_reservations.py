"""T21: pods that share what a reservation pod got from the kubelet."""

from dataclasses import replace

import pytest

from pipeline.model import Claim, Pod
from tests.pipeline.join.cluster import A, B, Cluster, annotated, kept, listed, pod, uid_of


def shares(name: str, *groups: str, share: float | None = None) -> Pod:
    claim = annotated(name, *groups, container="main", scheme="reserved", share=share)
    return pod(name, claims=[claim], wants=False)


def reserves(name: str, group: str, *claims: Claim) -> Pod:
    return replace(pod(name, claims=claims), reserves=(group,))


@pytest.mark.parametrize("uuid", [(), (A,), (B,)])
def test_the_sharing_pods_hold_their_parts_and_the_reservation_pod_none(
    uuid: tuple[str, ...],
) -> None:
    """The kubelet's id counts, whatever the reservation pod has written on itself."""
    node = Cluster()
    own = [annotated("r", *uuid)] if uuid else []
    node.pods(reserves("r", "g", *own), shares("a", "g", share=0.5), shares("b", "g"))
    node.seconds = 3
    node.kubelet(listed("r", A))
    assert node.held() == {A: ["a/main", "b/main"]}
    assert (node.shares(A), node.conflicts()) == ([0.5, None], {})


def test_a_checkpoint_reports_it_as_well() -> None:
    node = Cluster()
    node.pods(reserves("r", "g"), shares("a", "g", share=0.5))
    node.seconds = 3
    node.checkpoint(kept(uid_of("r"), A))
    assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {})


def test_several_groups_are_several_devices() -> None:
    node = Cluster()
    node.pods(
        reserves("r", "g"), reserves("s", "h"), shares("a", "g", "h", share=0.5), shares("b", "h")
    )
    node.seconds = 3
    node.kubelet(listed("r", A), listed("s", B))
    assert node.held() == {A: ["a/main"], B: ["a/main", "b/main"]}


def test_a_group_that_no_one_reserved_for_gives_nothing() -> None:
    node = Cluster()
    node.pods(pod("v"), shares("a", "v"), shares("b", "g"))
    node.seconds = 3
    node.kubelet(listed("v", A))
    assert (node.held(), node.conflicts()) == ({A: ["v/main"]}, {})
