"""Which pod a source means, and which pods cannot hold anything any more."""

import pytest

from pipeline.model import (
    Claim,
    Envelope,
    Event,
    Evidence,
    Instant,
    PodDeleted,
    PodUpserted,
    SourceLost,
)
from tests.pipeline.join.cluster import (
    A,
    B,
    Cluster,
    annotation_claim,
    checkpoint_claim,
    claim_list,
    kubelet_claim,
    moment,
    plugin_answer,
    pod,
    pod_list,
    podlist_claim,
    runtime_claim,
    uid_of,
)

TEN_MINUTES = 600
CLAIMS = {
    "the kubelet's list": ("kubelet", kubelet_claim("a", A)),
    "the checkpoint": ("checkpoint", checkpoint_claim(uid_of("a"), A)),
    "the plugin's answer": ("checkpoint", plugin_answer(uid_of("a"), [B], A)),
    "podlist.json": ("podlist", podlist_claim("a", A)),
    "an annotation": ("podlist", annotation_claim("a", A)),
}
EVERY_SOURCE = pytest.mark.parametrize(("source", "claim"), CLAIMS.values(), ids=CLAIMS.keys())


@EVERY_SOURCE
class TestClaimsOfEverySource:
    def test_a_running_pod_holds_the_claimed_device(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.emit(source, claim_list(claim))
        [holder] = node.attribution(A).holders
        assert (holder.subject.namespace, holder.subject.pod) == ("ml", "a")
        assert (holder.subject.container, holder.subject.uid) == ("main", uid_of("a"))
        assert holder.pod == pod("a").info

    def test_a_claim_is_valid_without_a_source_of_pods(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.emit(source, claim_list(claim))
        [holder] = node.attribution(A).holders
        assert holder.pod is None

    def test_an_unknown_pod_needs_a_name_if_there_is_a_source_of_pods(
        self, source: str, claim: Claim
    ) -> None:
        """The checkpoint keeps pods that are gone: podgpu, started later, does not know them."""
        node = Cluster()
        node.emit(source, claim_list(claim))
        node.pods(pod("other"))
        named = bool(claim.subject.pod)
        assert len(node.held()) == named
        node.upsert(pod("a"))
        assert node.held() == {A: ["a/main"]}
        node.delete("a")
        assert node.held() == {}
        node.emit("pods", SourceLost("the API server can't be reached"))
        assert node.held() == {}

    def test_an_unknown_pod_needs_no_name_while_the_source_of_pods_is_down(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("other"))
        node.emit("pods", SourceLost("the API server can't be reached"))
        node.emit(source, claim_list(claim))
        assert len(node.held()) == 1
        node.pods(pod("other"))
        assert len(node.held()) == bool(claim.subject.pod)

    def test_an_unknown_pod_needs_a_name_if_the_list_of_pods_is_empty(
        self, source: str, claim: Claim
    ) -> None:
        """On an empty node, the checkpoint still contains the pods that were there before."""
        node = Cluster()
        node.pods()
        node.emit(source, claim_list(claim))
        assert len(node.held()) == bool(claim.subject.pod)

    def test_an_unknown_pod_needs_a_name_after_the_last_pod_was_deleted(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("other"))
        node.delete("other")
        node.emit(source, claim_list(claim))
        assert len(node.held()) == bool(claim.subject.pod)

    def test_an_ended_pod_stays_ended_when_the_api_server_is_silent(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.upsert(pod("a", ended=True))
        for _ in range(4):
            node.seconds += 100
            node.emit(source, claim_list(claim))
        # A name may be another pod's by now.
        assert len(node.held()) == (not claim.subject.uid)

    def test_an_ended_pod_releases_its_gpu_immediately(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.emit(source, claim_list(claim))
        node.upsert(pod("a", ended=True))
        assert node.held() == {}

    def test_a_deleted_pod_releases_its_gpu_immediately(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.emit(source, claim_list(claim))
        node.delete("a")
        assert node.held() == {}

    def test_a_pod_that_a_new_list_lacks_holds_nothing(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.emit(source, claim_list(claim))
        node.pods(pod("b"))
        assert node.held() == {}

    def test_late_claims_do_not_bring_a_deleted_pod_back(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.delete("a")
        node.emit(source, claim_list(claim))
        node.emit(source, claim_list(claim, podlist_claim("x", B)))
        assert node.held() == {B: ["x/main"]}

    def test_a_deleted_pod_stays_gone_while_claims_name_it(self, source: str, claim: Claim) -> None:
        """On a quiet node, a checkpoint names a pod for days after its end."""
        node = Cluster()
        node.pods(pod("a"), *(pod(f"p{number}") for number in range(20)))
        node.emit(source, claim_list(claim))
        node.delete("a")
        for number in range(20):
            node.seconds += 200
            node.pods(*(pod(f"p{n}") for n in range(number, 20)))
            node.delete(f"p{number}")
            node.emit(source, claim_list(claim))
            assert node.held() == {}

    def test_a_deleted_pod_is_forgotten_when_no_claim_names_it(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.emit(source, claim_list(claim))
        node.delete("a")
        node.emit(source, claim_list())
        node.seconds = TEN_MINUTES + 1
        node.pods(pod("b"), pod("c"))
        node.emit(source, claim_list(claim))
        assert len(node.held()) == bool(claim.subject.pod)


class TestReusedNames:
    """A pod is deleted and created again under its name. Sources of names only lag behind."""

    def test_claims_from_before_the_new_pod_was_admitted_mean_the_old_pod(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.kubelet(kubelet_claim("a", A))
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.seconds = 5
        node.kubelet(kubelet_claim("a", A))
        assert node.held() == {}
        node.seconds = 6
        node.upsert(pod("a", uid="2", started=5.5))
        assert node.held() == {}
        node.seconds = 7
        node.kubelet(kubelet_claim("a", B))
        assert node.attribution(B).holders[0].subject.uid == "2"
        assert node.held() == {B: ["a/main"]}

    def test_the_same_claims_confirmed_later_mean_the_new_pod(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.kubelet(kubelet_claim("a", A))
        node.delete("a", uid="1")
        node.seconds = 5.5
        node.upsert(pod("a", uid="2", started=5))
        assert node.held() == {}
        node.seconds = 6
        node.kubelet(kubelet_claim("a", A))
        assert [holder.subject.uid for holder in node.attribution(A).holders] == ["2"]

    def test_the_new_pod_may_be_reported_before_the_end_of_the_old_one(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.upsert(pod("a", uid="2"))
        node.delete("a", uid="1")
        node.kubelet(kubelet_claim("a", A))
        assert [holder.subject.uid for holder in node.attribution(A).holders] == ["2"]

    def test_claims_with_a_uid_are_not_ambiguous(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.checkpoint(checkpoint_claim("1", A), checkpoint_claim("2", B))
        assert node.held() == {B: ["a/main"]}


class TestClockSteps:
    """A pod's start is a time of the node's wall clock, which may have been set since."""

    @staticmethod
    def emit(node: Cluster, source: str, event: Event, when: Instant) -> None:
        node.join.apply(Envelope(source, source, 1, when, event))

    def test_claims_are_valid_after_the_clock_was_set_back(self) -> None:
        node = Cluster()
        self.emit(node, "pods", pod_list(pod("a", started=5)), moment(10))
        for second in (11, 20, 30):
            back = moment(second, stepped=-3600)
            self.emit(node, "kubelet", claim_list(kubelet_claim("a", A)), back)
            self.emit(
                node, "podlist", claim_list(podlist_claim("b", B, container=f"at {second}")), back
            )
            assert A in node.held()

    def test_claims_mean_the_new_pod_after_the_clock_was_set_forward(self) -> None:
        node = Cluster()
        self.emit(node, "pods", pod_list(pod("a", uid="1")), moment(10))
        self.emit(node, "kubelet", claim_list(kubelet_claim("a", A)), moment(11))
        self.emit(node, "pods", PodDeleted("1"), moment(12))
        self.emit(
            node, "pods", PodUpserted(pod("a", uid="2", started=3613)), moment(14, stepped=3600)
        )
        assert node.held() == {}
        self.emit(node, "kubelet", claim_list(kubelet_claim("a", A)), moment(15, stepped=3600))
        assert node.held() == {A: ["a/main"]}

    def test_a_start_in_the_future_does_not_delay_claims(self) -> None:
        node = Cluster()
        self.emit(node, "kubelet", claim_list(kubelet_claim("a", A)), moment(9))
        self.emit(node, "pods", pod_list(pod("a", started=28_800)), moment(10))
        assert node.held() == {}
        self.emit(node, "kubelet", claim_list(kubelet_claim("a", A)), moment(11))
        assert node.held() == {A: ["a/main"]}


class TestRuntimeClaims:
    """The runtime's claims on its own containers are valid without a pod of the API server."""

    @pytest.mark.parametrize("evidence", [Evidence.RUNTIME_CDI, Evidence.RUNTIME_NODES])
    def test_runtime_claims_are_valid_for_pods_that_ended_or_are_gone(
        self, evidence: Evidence
    ) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.runtime(
            runtime_claim("a", A, evidence=evidence), runtime_claim("b", B, evidence=evidence)
        )
        node.upsert(pod("a", ended=True))
        node.delete("b")
        assert node.held() == {A: ["a/main"], B: ["b/main"]}

    def test_runtime_claims_are_valid_for_a_pod_that_is_not_admitted(self) -> None:
        node = Cluster()
        node.pods(pod("a", started=None))
        node.runtime(runtime_claim("a", A))
        assert node.held() == {A: ["a/main"]}
