"""T21: pods that share a device that the kubelet allocated to a reservation pod."""

from dataclasses import replace

import pytest

from pipeline.model import Claim, Pod
from tests.pipeline.join.cluster import (
    A,
    B,
    Cluster,
    annotation_claim,
    checkpoint_claim,
    kubelet_claim,
    pod,
    uid_of,
)


def sharing_pod(name: str, *groups: str, share: float | None = None) -> Pod:
    claim = annotation_claim(name, *groups, container="main", scheme="reserved", share=share)
    return pod(name, claims=[claim], wants=False)


def reservation_pod(name: str, group: str, *claims: Claim) -> Pod:
    return replace(pod(name, claims=claims), reserves=(group,))


@pytest.mark.parametrize("uuid", [(), (A,), (B,)])
def test_the_sharing_pods_hold_the_device_and_the_reservation_pod_does_not(
    uuid: tuple[str, ...],
) -> None:
    """The kubelet's id counts, whatever annotation the reservation pod has."""
    node = Cluster()
    own = [annotation_claim("r", *uuid)] if uuid else []
    node.pods(
        reservation_pod("r", "g", *own), sharing_pod("a", "g", share=0.5), sharing_pod("b", "g")
    )
    node.seconds = 3
    node.kubelet(kubelet_claim("r", A))
    assert node.held() == {A: ["a/main", "b/main"]}
    assert (node.shares(A), node.conflicts()) == ([0.5, None], {})


def test_the_checkpoint_s_claim_of_a_reservation_pod_counts_too() -> None:
    node = Cluster()
    node.pods(reservation_pod("r", "g"), sharing_pod("a", "g", share=0.5))
    node.seconds = 3
    node.checkpoint(checkpoint_claim(uid_of("r"), A))
    assert (node.held(), node.conflicts()) == ({A: ["a/main"]}, {})


def test_several_groups_share_several_devices() -> None:
    node = Cluster()
    node.pods(
        reservation_pod("r", "g"),
        reservation_pod("s", "h"),
        sharing_pod("a", "g", "h", share=0.5),
        sharing_pod("b", "h"),
    )
    node.seconds = 3
    node.kubelet(kubelet_claim("r", A), kubelet_claim("s", B))
    assert node.held() == {A: ["a/main"], B: ["a/main", "b/main"]}


def test_a_group_without_reservation_pod_holds_nothing() -> None:
    node = Cluster()
    node.pods(pod("v"), sharing_pod("a", "v"), sharing_pod("b", "g"))
    node.seconds = 3
    node.kubelet(kubelet_claim("v", A))
    assert (node.held(), node.conflicts()) == ({A: ["v/main"]}, {})
