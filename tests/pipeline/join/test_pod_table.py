"""Which pod a source means, and which pods can't hold anything any more."""

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
    annotated,
    answered,
    filed,
    kept,
    listed,
    moment,
    pod,
    ran,
    relist,
    uid_of,
    whole,
)

TEN_MINUTES = 600
SAYING = {
    "the kubelet's list": ("kubelet", listed("a", A)),
    "the checkpoint": ("checkpoint", kept(uid_of("a"), A)),
    "the plugin's answer": ("checkpoint", answered(uid_of("a"), [B], A)),
    "podlist.json": ("podlist", filed("a", A)),
    "an annotation": ("podlist", annotated("a", A)),
}
EVERY_SOURCE = pytest.mark.parametrize(("source", "claim"), SAYING.values(), ids=SAYING.keys())


@EVERY_SOURCE
class TestWhoeverNamesIt:
    def test_a_running_pod_holds_what_it_is_said_to(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.tell(source, whole(claim))
        [holder] = node.on(A).holders
        assert (holder.subject.namespace, holder.subject.pod) == ("ml", "a")
        assert (holder.subject.container, holder.subject.uid) == ("main", uid_of("a"))
        assert holder.pod == pod("a").info

    def test_one_of_which_no_one_reported_is_taken_at_its_word(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.tell(source, whole(claim))
        [holder] = node.on(A).holders
        assert holder.pod is None

    def test_one_that_those_who_know_the_pods_do_not_know_needs_a_name(
        self, source: str, claim: Claim
    ) -> None:
        """The checkpoint keeps pods that are gone: a podgpu that starts later never knew them."""
        node = Cluster()
        node.tell(source, whole(claim))
        node.pods(pod("other"))
        named = bool(claim.subject.pod)
        assert len(node.held()) == named
        node.upsert(pod("a"))
        assert node.held() == {A: ["a/main"]}
        node.delete("a")
        assert node.held() == {}
        node.tell("pods", SourceLost("the API server can't be reached"))
        assert node.held() == {}

    def test_who_reports_of_pods_is_asked_only_while_it_does_its_work(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("other"))
        node.tell("pods", SourceLost("the API server can't be reached"))
        node.tell(source, whole(claim))
        assert len(node.held()) == 1
        node.pods(pod("other"))
        assert len(node.held()) == bool(claim.subject.pod)

    def test_one_who_reports_of_no_pod_at_all_knows_that_there_is_none(
        self, source: str, claim: Claim
    ) -> None:
        """An empty node, whose checkpoint has what was there before."""
        node = Cluster()
        node.pods()
        node.tell(source, whole(claim))
        assert len(node.held()) == bool(claim.subject.pod)

    def test_one_whose_last_pod_is_gone_knows_the_node_all_the_same(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("other"))
        node.delete("other")
        node.tell(source, whole(claim))
        assert len(node.held()) == bool(claim.subject.pod)

    def test_what_is_gone_or_has_ended_stays_so_when_the_api_server_falls_silent(
        self, source: str, claim: Claim
    ) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.upsert(pod("a", ended=True))
        for _ in range(4):
            node.seconds += 100
            node.tell(source, whole(claim))
        assert len(node.held()) == (not claim.subject.uid)  # a name may be another's by now

    def test_one_that_ends_holds_nothing_at_once(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.tell(source, whole(claim))
        node.upsert(pod("a", ended=True))
        assert node.held() == {}

    def test_one_that_is_deleted_holds_nothing_at_once(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.tell(source, whole(claim))
        node.delete("a")
        assert node.held() == {}

    def test_one_that_a_new_list_lacks_holds_nothing(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.tell(source, whole(claim))
        node.pods(pod("b"))
        assert node.held() == {}

    def test_what_lags_behind_does_not_bring_it_back(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.delete("a")
        node.tell(source, whole(claim))
        node.tell(source, whole(claim, filed("x", B)))
        assert node.held() == {B: ["x/main"]}

    def test_it_stays_gone_for_as_long_as_it_is_named(self, source: str, claim: Claim) -> None:
        """A checkpoint on a quiet node names a pod for days after its end."""
        node = Cluster()
        node.pods(pod("a"), *(pod(f"p{number}") for number in range(20)))
        node.tell(source, whole(claim))
        node.delete("a")
        for number in range(20):
            node.seconds += 200
            node.pods(*(pod(f"p{n}") for n in range(number, 20)))
            node.delete(f"p{number}")
            node.tell(source, whole(claim))
            assert node.held() == {}

    def test_it_is_forgotten_when_no_one_names_it_any_more(self, source: str, claim: Claim) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.tell(source, whole(claim))
        node.delete("a")
        node.tell(source, whole())
        node.seconds = TEN_MINUTES + 1
        node.pods(pod("b"), pod("c"))
        node.tell(source, whole(claim))
        assert len(node.held()) == bool(claim.subject.pod)


class TestNamesakes:
    """A pod is deleted and made anew under its name; sources that know names alone lag behind."""

    def test_what_was_said_before_the_kubelet_took_the_new_one_on_is_about_the_old(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.kubelet(listed("a", A))
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.seconds = 5
        node.kubelet(listed("a", A))
        assert node.held() == {}
        node.seconds = 6
        node.upsert(pod("a", uid="2", started=5.5))
        assert node.held() == {}
        node.seconds = 7
        node.kubelet(listed("a", B))
        assert node.on(B).holders[0].subject.uid == "2"
        assert node.held() == {B: ["a/main"]}

    def test_the_same_words_once_more_are_about_the_new_one(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.kubelet(listed("a", A))
        node.delete("a", uid="1")
        node.seconds = 5.5
        node.upsert(pod("a", uid="2", started=5))
        assert node.held() == {}
        node.seconds = 6
        node.kubelet(listed("a", A))
        assert [holder.subject.uid for holder in node.on(A).holders] == ["2"]

    def test_the_order_of_the_old_one_s_end_and_the_new_one_s_beginning_is_no_matter(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.upsert(pod("a", uid="2"))
        node.delete("a", uid="1")
        node.kubelet(listed("a", A))
        assert [holder.subject.uid for holder in node.on(A).holders] == ["2"]

    def test_a_uid_leaves_no_doubt(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.checkpoint(kept("1", A), kept("2", B))
        assert node.held() == {B: ["a/main"]}


class TestClocksThatAreSet:
    """The start of a pod is told by the node's wall clock, which may have been set since."""

    @staticmethod
    def say(node: Cluster, source: str, event: Event, when: Instant) -> None:
        node.join.apply(Envelope(source, source, 1, when, event))

    def test_back(self) -> None:
        node = Cluster()
        self.say(node, "pods", relist(pod("a", started=5)), moment(10))
        for second in (11, 20, 30):
            back = moment(second, stepped=-3600)
            self.say(node, "kubelet", whole(listed("a", A)), back)
            self.say(node, "podlist", whole(filed("b", B, container=f"at {second}")), back)
            assert A in node.held()

    def test_forward(self) -> None:
        node = Cluster()
        self.say(node, "pods", relist(pod("a", uid="1")), moment(10))
        self.say(node, "kubelet", whole(listed("a", A)), moment(11))
        self.say(node, "pods", PodDeleted("1"), moment(12))
        self.say(
            node, "pods", PodUpserted(pod("a", uid="2", started=3613)), moment(14, stepped=3600)
        )
        assert node.held() == {}
        self.say(node, "kubelet", whole(listed("a", A)), moment(15, stepped=3600))
        assert node.held() == {A: ["a/main"]}

    def test_a_start_in_the_future_is_not_waited_for(self) -> None:
        node = Cluster()
        self.say(node, "kubelet", whole(listed("a", A)), moment(9))
        self.say(node, "pods", relist(pod("a", started=28_800)), moment(10))
        assert node.held() == {}
        self.say(node, "kubelet", whole(listed("a", A)), moment(11))
        assert node.held() == {A: ["a/main"]}


class TestTheRuntime:
    """What the runtime says of its own containers needs no pod, and no leave of the API server."""

    @pytest.mark.parametrize("evidence", [Evidence.RUNTIME_CDI, Evidence.RUNTIME_NODES])
    def test_it_is_believed_of_pods_that_ended_or_are_gone(self, evidence: Evidence) -> None:
        node = Cluster()
        node.pods(pod("a"), pod("b"))
        node.runtime(ran("a", A, evidence=evidence), ran("b", B, evidence=evidence))
        node.upsert(pod("a", ended=True))
        node.delete("b")
        assert node.held() == {A: ["a/main"], B: ["b/main"]}

    def test_it_is_believed_of_a_pod_that_no_kubelet_took_on(self) -> None:
        node = Cluster()
        node.pods(pod("a", started=None))
        node.runtime(ran("a", A))
        assert node.held() == {A: ["a/main"]}
