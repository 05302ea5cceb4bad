"""Static pods, starts, silence, and pods that come and go for months."""

from dataclasses import replace

import pytest

from pipeline.model import (
    NS,
    ClaimsReplaced,
    Envelope,
    Event,
    PodDeleted,
    PodsReplaced,
    PodUpserted,
    SourceAdded,
    SourceLost,
    SourceRemoved,
)
from tests.pipeline.join.cluster import (
    GOOD_FOR,
    A,
    B,
    Cluster,
    annotated,
    container,
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
HOLDS_A = pod("a", claims=[annotated("a", A)])


class TestStaticPods:
    """The kubelet and the runtime know them by another uid than the API server."""

    STATIC = pod("etcd-node-1", uid="mirror", static_uid="config-hash")

    def test_all_names_mean_the_one_pod(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.kubelet(listed("etcd-node-1", A))
        node.checkpoint(kept("config-hash", A))
        node.runtime(replace(ran("etcd-node-1", A), subject=kept("config-hash", A).subject))
        [holder] = node.on(A).holders
        assert (holder.subject.pod, holder.subject.uid) == ("etcd-node-1", "config-hash")

    def test_a_new_mirror_takes_over(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.checkpoint(kept("config-hash", A))
        node.upsert(pod("etcd-node-1", uid="mirror-2", static_uid="config-hash"))
        node.delete("", uid="mirror")
        assert [holder.subject.uid for holder in node.on(A).holders] == ["config-hash"]

    def test_a_mirror_that_is_made_again_brings_it_back(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.checkpoint(kept("config-hash", A))
        node.delete("", uid="mirror")
        assert node.held() == {}
        node.upsert(pod("etcd-node-1", uid="mirror-2", static_uid="config-hash"))
        assert [holder.subject.uid for holder in node.on(A).holders] == ["config-hash"]

    def test_without_its_mirror_it_continues_for_as_long_as_the_kubelet_lists_it(self) -> None:
        """A quota may keep the mirror from being made anew."""
        node = Cluster()
        node.pods(self.STATIC, pod("other"))
        node.kubelet(listed("etcd-node-1", A))
        envelope = Envelope("pods", "pods", 1, moment(5), PodDeleted("mirror"))
        outcome = node.join.apply(envelope)
        assert [hint.pods for hint in outcome.hints if hint.pods] == [{"mirror"}]
        for _ in range(20):
            node.seconds += 100
            node.pods(pod("other"))
            node.kubelet(listed("etcd-node-1", A))
        assert node.held() == {A: ["etcd-node-1/main"]}
        node.kubelet()
        assert node.held() == {}

    @pytest.mark.parametrize("before", [True, False])
    @pytest.mark.parametrize("named", ["config-hash", "uid-web"])
    def test_t01_a_mirror_that_someone_forged_takes_nothing(
        self, named: str, *, before: bool
    ) -> None:
        """Whoever creates a pod may write that it is the mirror of any."""
        node = Cluster()
        honest = (self.STATIC, pod("web", uid="uid-web"))
        evil = pod("evil", uid="uid-evil", static_uid=named)
        if before and named == "uid-web":
            node.pods(evil, *honest)
        else:
            node.pods(*honest)
            node.upsert(evil)
        node.checkpoint(kept("config-hash", A), kept("uid-web", B))
        assert node.held() == {A: ["etcd-node-1/main"], B: ["web/main"]}
        node.delete("web", uid="uid-web")
        node.upsert(replace(evil, wants_devices=True))
        assert "evil/main" not in [name for names in node.held().values() for name in names]

    def test_a_manifest_that_changed_leaves_its_old_uid_behind(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.upsert(replace(self.STATIC, static_uid="config-hash-2"))
        node.checkpoint(kept("config-hash", A), kept("config-hash-2", B))
        assert node.held() == {B: ["etcd-node-1/main"]}

    def test_without_a_mirror_the_kubelet_s_uid_is_all_that_is_known(self) -> None:
        node = Cluster()
        node.tell("pods", SourceLost("the API server can't be reached"))
        node.checkpoint(kept("config-hash", A))
        assert node.held() == {A: ["config-hash/main"]}


class TestStarts:
    def test_a_list_of_the_second_in_which_the_pod_started_may_be_about_its_namesake(self) -> None:
        """Starts are told in whole seconds, rounded down."""
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.seconds = 7.5
        node.kubelet(listed("a", A))
        node.seconds = 7.8
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=7))
        assert node.held() == {}
        node.kubelet(listed("a", B))  # said after the start was told
        assert node.held() == {B: ["a/main"]}

    def test_t14_a_start_that_is_heard_after_the_list_that_names_the_pod(self) -> None:
        """It was replaced quickly, in the second in which its name's last pod went."""
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.kubelet(listed("a", A))
        node.seconds = 10.1
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.seconds = 10.2
        node.kubelet(listed("a", B))
        assert node.held() == {}  # the kubelet may still name the one that is gone
        node.seconds = 10.3
        node.upsert(pod("a", uid="2", started=10))
        assert node.held() == {B: ["a/main"]}
        assert node.on(B).holders[0].subject.uid == "2"

    @pytest.mark.parametrize("given_out", [None, 10])
    def test_t14_a_name_that_no_other_pod_has_had_means_the_pod(
        self, given_out: float | None
    ) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.seconds = 10.2
        node.kubelet(listed("b", A))
        node.seconds = 10.3
        node.upsert(pod("b", started=given_out))
        assert [holder.subject.uid for holder in node.on(A).holders] == [uid_of("b")]

    def test_a_start_that_cannot_be_reported_is_no_reason_to_doubt_the_kubelet(self) -> None:
        """The API server goes away between the pod's binding and its start."""
        node = Cluster()
        node.pods(pod("a", started=None), pod("b"))
        node.kubelet(listed("a", A))
        assert node.held() == {A: ["a/main"]}
        node.tell("pods", SourceLost("the API server can't be reached"))
        assert node.held() == {A: ["a/main"]}

    def test_but_it_is_where_the_name_had_another_owner(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"), pod("b"))
        node.kubelet(listed("a", A))
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.tell("pods", SourceLost("the API server can't be reached"))
        assert node.held() == {}

    def test_a_scheduler_s_word_counts_once_the_kubelet_has_taken_the_pod_on(self) -> None:
        node = Cluster()
        node.pods(pod("a", started=None, claims=[annotated("a", A)]))
        assert node.held() == {}
        node.upsert(pod("a", started=3, claims=[annotated("a", A)]))
        assert node.held() == {A: ["a/main"]}


def test_pods_that_no_one_names_leave_nothing_behind() -> None:
    """A cluster makes and deletes pods for months beside one that holds a GPU."""
    node = Cluster()
    node.pods(pod("a"))
    node.kubelet(listed("a", A))
    given_out = node.join._attributor.pods._by_source["pods"]
    sizes = []
    for number in range(4000):
        node.seconds += 5
        node.upsert(pod(f"job-{number}", wants=False))
        node.delete(f"job-{number}")
        sizes.append(len(given_out._deleted))
    assert max(sizes[2000:]) == max(sizes[1000:2000])


class TestContainers:
    def test_a_pod_s_claim_is_its_only_container_s(self) -> None:
        node = Cluster()
        node.pods(
            pod("a", container("prepare", "init"), container("main"), container("x", "ephemeral"))
        )
        node.file(annotated("a", A))
        assert node.held() == {A: ["a/main"]}

    @pytest.mark.parametrize("kind", ["app", "sidecar"])
    def test_of_two_there_is_no_reporting_which(self, kind: str) -> None:
        node = Cluster()
        node.pods(pod("a", container("main"), container("other", kind)))
        node.file(annotated("a", A))
        assert node.held() == {A: ["a/"]}

    def test_a_pod_that_lacks_containers_has_none(self) -> None:
        node = Cluster()
        node.pods(replace(pod("a"), containers=()))
        node.file(annotated("a", A))
        node.kubelet(listed("a", f"{B}-3", container="ghost"))
        assert node.held() == {A: ["a/"]}

    def test_the_only_one_that_completed_still_holds_until_its_pod_has_ended(self) -> None:
        node = Cluster()
        node.pods(pod("a", container(ended=True)))
        node.kubelet(listed("a", A))
        assert node.held() == {A: ["a/main"]}

    def test_a_container_that_is_made_again_continues_holding(self) -> None:
        node = Cluster()
        node.pods(pod("a", container(container_id="c1", started=1)))
        node.runtime(ran("a", A, container_id="c1"))
        since = node.on(A).holders[0].since
        node.seconds = 50
        node.upsert(pod("a", container(container_id="c2", started=49)))
        node.runtime(ran("a", A, container_id="c2"))
        [holder] = node.on(A).holders
        assert (holder.since, holder.subject.container_id) == (since, "c2")


class TestSilence:
    def test_pods_are_forgotten_after_their_time_and_not_before(self) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.seconds = 100
        node.kubelet(listed("a", A))
        node.tick(GOOD_FOR)
        assert node.on(A).holders[0].pod is not None
        node.tick(GOOD_FOR + 1)
        [holder] = node.on(A).holders
        # Which pod the name means stays known for as long as it is listed without a break.
        assert (holder.subject.pod, holder.subject.uid, holder.pod) == ("a", uid_of("a"), None)
        node.kubelet()
        node.kubelet(listed("a", A))
        assert node.on(A).holders[0].subject.uid == ""

    def test_what_annotations_said_goes_with_them(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", A)]))
        node.tick(GOOD_FOR + 1)
        assert node.held() == {}

    @pytest.mark.parametrize(
        "event", [PodUpserted(pod("b")), PodDeleted("nobody"), relist(HOLDS_A)]
    )
    def test_any_word_of_the_source_confirms_all_of_them(self, event: Event) -> None:
        node = Cluster()
        node.pods(HOLDS_A)
        node.seconds = 200
        node.tell("pods", event)
        node.tick(GOOD_FOR + 150)
        assert node.held() == {A: ["a/main"]}

    def test_a_change_without_a_list_says_nothing(self) -> None:
        node = Cluster()
        node.upsert(pod("a", claims=[annotated("a", A)]))
        node.delete("a")
        assert node.held() == {}
        node.pods()
        node.kubelet(listed("a", A))
        assert node.held() == {A: ["a/main"]}

    def test_a_source_that_leaves_takes_its_pods_along(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotated("a", A)]))
        node.kubelet(listed("a", B))
        node.tell("pods", SourceRemoved())
        assert node.held() == {B: ["a/main"]}
        assert node.on(B).holders[0].pod is None


class TestTwoSourcesOfPods:
    def test_the_earlier_one_counts_and_the_later_one_steps_in(self) -> None:
        node = Cluster()
        node.say(SourceAdded(9), "more pods", "pods")
        first, second = pod("a"), replace(pod("a"), info=replace(pod("a").info, phase="Running"))
        node.say(relist(second, pod("b")), "more pods", "pods")
        node.pods(first)
        node.kubelet(listed("a", A), listed("b", B))
        assert node.on(A).holders[0].pod is first.info
        assert node.on(B).holders[0].pod == pod("b").info
        node.tell("pods", SourceRemoved())
        assert node.on(A).holders[0].pod == second.info


def test_a_list_that_names_a_pod_twice_has_it_once() -> None:
    node = Cluster()
    node.pods(pod("a", started=None), pod("a", started=0))
    node.kubelet(listed("a", A))
    assert node.held() == {A: ["a/main"]}
    node.delete("a")
    assert node.held() == {}


def test_empty_names_are_names_that_no_one_knows() -> None:
    node = Cluster()
    nameless = replace(pod("a"), info=replace(pod("a").info, uid="", namespace="", name=""))
    node.pods(nameless, pod("b"))
    node.kubelet(listed("", A, container=""), listed("b", B, container=""))
    node.checkpoint(kept("", A, container=""))
    node.tell("pods", PodDeleted(""))
    assert node.held()[B] == ["b/main"]


def test_hints_name_pods_for_which_the_kubelet_may_have_given_devices() -> None:
    node = Cluster()
    node.pods()

    def hinted(event: Event) -> list[str]:
        outcome = node.join.apply(Envelope("pods", "pods", 1, moment(0), event))
        return [uid for hint in outcome.hints for uid in hint.pods]

    assert hinted(PodUpserted(pod("a", started=None))) == []
    assert hinted(PodUpserted(pod("a"))) == [uid_of("a")]
    assert hinted(PodUpserted(replace(pod("a"), info=replace(pod("a").info, qos="x")))) == []
    assert hinted(PodUpserted(pod("a", container(container_id="c1")))) == [uid_of("a")]
    assert hinted(PodUpserted(pod("b", wants=False))) == []
    assert hinted(PodUpserted(pod("a", ended=True))) == []
    assert hinted(PodDeleted(uid_of("a"))) == []


def test_a_pod_that_no_one_names_changes_nothing() -> None:
    node = Cluster()
    node.pods(pod("a"))
    node.kubelet(listed("a", A))
    layout = node.snapshot().layout
    assert node.tell("pods", PodUpserted(pod("b", wants=False))) is False
    assert node.tell("pods", PodDeleted(uid_of("b"))) is False
    assert node.snapshot().layout is layout


def test_a_churn_of_pods_leaves_nothing_behind() -> None:
    """A hundred thousand pods, a second each, whose names and containers never come again."""
    node = Cluster()
    node.pods()
    for number in range(3_000):
        node.seconds += 1
        name = f"p{number}"
        node.upsert(pod(name))
        node.kubelet(listed(name, f"{A}::{number}", container="not in the pod's spec"))
        node.upsert(pod(name, ended=True))
        node.delete(name)
    pods = node.join._attributor.pods
    [given_out] = pods._by_rank
    assert (len(given_out.pods), len(given_out._by_identifier), len(given_out._admitted_ns)) == (
        0,
        0,
        0,
    )
    assert len(pods._subjects) == 0
    # Uid and name, for each pod of the last ten minutes.
    assert len(given_out._deleted) <= 2 * (TEN_MINUTES + 2)


def test_time_that_stands_still_does_not_stop_it() -> None:
    node = Cluster()
    node.pods(*(pod(f"p{number}") for number in range(100)))
    node.kubelet(*(listed(f"p{number}", A) for number in range(100)))
    for number in range(100):
        node.delete(f"p{number}")
    assert node.held() == {}


def test_claims_replaced_within_the_same_moment_as_the_pod_are_about_it() -> None:
    node = Cluster()
    event: ClaimsReplaced | PodsReplaced
    for event, source in (
        (relist(pod("a", started=2)), "pods"),
        (whole(listed("a", A)), "kubelet"),
    ):
        node.seconds = 2
        node.tell(source, event)
    assert node.held() == {A: ["a/main"]}
    assert node.on(A).holders[0].since.mono_ns == moment(2).mono_ns
    assert moment(2).mono_ns - moment(0).mono_ns == 2 * NS
