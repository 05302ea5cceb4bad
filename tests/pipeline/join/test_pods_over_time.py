"""Static pods, starts of pods, silent sources, and pods that come and go for months."""

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
    annotation_claim,
    checkpoint_claim,
    claim_list,
    container,
    kubelet_claim,
    moment,
    pod,
    pod_list,
    runtime_claim,
    uid_of,
)

TEN_MINUTES = 600
POD_WITH_A = pod("a", claims=[annotation_claim("a", A)])


class TestStaticPods:
    """The kubelet and the runtime know them by another UID than the API server."""

    STATIC = pod("etcd-node-1", uid="mirror", static_uid="config-hash")

    def test_all_uids_and_names_mean_one_pod(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.kubelet(kubelet_claim("etcd-node-1", A))
        node.checkpoint(checkpoint_claim("config-hash", A))
        node.runtime(
            replace(
                runtime_claim("etcd-node-1", A), subject=checkpoint_claim("config-hash", A).subject
            )
        )
        [holder] = node.attribution(A).holders
        assert (holder.subject.pod, holder.subject.uid) == ("etcd-node-1", "config-hash")

    def test_a_static_pod_keeps_its_uid_when_a_new_mirror_replaces_the_old_one(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.checkpoint(checkpoint_claim("config-hash", A))
        node.upsert(pod("etcd-node-1", uid="mirror-2", static_uid="config-hash"))
        node.delete("", uid="mirror")
        assert [holder.subject.uid for holder in node.attribution(A).holders] == ["config-hash"]

    def test_a_recreated_mirror_brings_the_static_pod_back(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.checkpoint(checkpoint_claim("config-hash", A))
        node.delete("", uid="mirror")
        assert node.held() == {}
        node.upsert(pod("etcd-node-1", uid="mirror-2", static_uid="config-hash"))
        assert [holder.subject.uid for holder in node.attribution(A).holders] == ["config-hash"]

    def test_a_static_pod_without_mirror_continues_while_the_kubelet_lists_it(self) -> None:
        """A quota may prevent the mirror from being created again."""
        node = Cluster()
        node.pods(self.STATIC, pod("other"))
        node.kubelet(kubelet_claim("etcd-node-1", A))
        envelope = Envelope("pods", "pods", 1, moment(5), PodDeleted("mirror"))
        outcome = node.join.apply(envelope)
        assert [hint.pods for hint in outcome.hints if hint.pods] == [{"mirror"}]
        for _ in range(20):
            node.seconds += 100
            node.pods(pod("other"))
            node.kubelet(kubelet_claim("etcd-node-1", A))
        assert node.held() == {A: ["etcd-node-1/main"]}
        node.kubelet()
        assert node.held() == {}

    @pytest.mark.parametrize("before", [True, False])
    @pytest.mark.parametrize("named", ["config-hash", "uid-web"])
    def test_t01_a_forged_mirror_holds_nothing_of_another_pod(
        self, named: str, *, before: bool
    ) -> None:
        """A pod's author can claim to be the mirror of any pod."""
        node = Cluster()
        honest = (self.STATIC, pod("web", uid="uid-web"))
        evil = pod("evil", uid="uid-evil", static_uid=named)
        if before and named == "uid-web":
            node.pods(evil, *honest)
        else:
            node.pods(*honest)
            node.upsert(evil)
        node.checkpoint(checkpoint_claim("config-hash", A), checkpoint_claim("uid-web", B))
        assert node.held() == {A: ["etcd-node-1/main"], B: ["web/main"]}
        node.delete("web", uid="uid-web")
        node.upsert(replace(evil, wants_devices=True))
        assert "evil/main" not in [name for names in node.held().values() for name in names]

    def test_claims_with_the_uid_of_a_changed_manifest_have_no_effect(self) -> None:
        node = Cluster()
        node.pods(self.STATIC)
        node.upsert(replace(self.STATIC, static_uid="config-hash-2"))
        node.checkpoint(checkpoint_claim("config-hash", A), checkpoint_claim("config-hash-2", B))
        assert node.held() == {B: ["etcd-node-1/main"]}

    def test_without_a_mirror_only_the_kubelet_s_uid_is_known(self) -> None:
        node = Cluster()
        node.emit("pods", SourceLost("the API server can't be reached"))
        node.checkpoint(checkpoint_claim("config-hash", A))
        assert node.held() == {A: ["config-hash/main"]}


class TestStartsOfPods:
    def test_a_list_from_the_second_of_a_pod_s_start_may_mean_the_previous_pod(self) -> None:
        """Start times are whole seconds, rounded down."""
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.seconds = 7.5
        node.kubelet(kubelet_claim("a", A))
        node.seconds = 7.8
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=7))
        assert node.held() == {}
        node.kubelet(kubelet_claim("a", B))  # reported after the start
        assert node.held() == {B: ["a/main"]}

    def test_t14_a_list_counts_when_the_pod_s_start_is_reported_after_it(self) -> None:
        """The pod was replaced within the second in which the previous pod ended."""
        node = Cluster()
        node.pods(pod("a", uid="1"))
        node.kubelet(kubelet_claim("a", A))
        node.seconds = 10.1
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.seconds = 10.2
        node.kubelet(kubelet_claim("a", B))
        assert node.held() == {}  # the kubelet may still mean the previous pod
        node.seconds = 10.3
        node.upsert(pod("a", uid="2", started=10))
        assert node.held() == {B: ["a/main"]}
        assert node.attribution(B).holders[0].subject.uid == "2"

    @pytest.mark.parametrize("started", [None, 10])
    def test_t14_a_name_that_only_one_pod_has_had_means_that_pod(
        self, started: float | None
    ) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.seconds = 10.2
        node.kubelet(kubelet_claim("b", A))
        node.seconds = 10.3
        node.upsert(pod("b", started=started))
        assert [holder.subject.uid for holder in node.attribution(A).holders] == [uid_of("b")]

    def test_the_kubelet_s_claim_is_valid_while_the_start_cannot_be_reported(self) -> None:
        """The API server goes away after the pod was bound and before its start is reported."""
        node = Cluster()
        node.pods(pod("a", started=None), pod("b"))
        node.kubelet(kubelet_claim("a", A))
        assert node.held() == {A: ["a/main"]}
        node.emit("pods", SourceLost("the API server can't be reached"))
        assert node.held() == {A: ["a/main"]}

    def test_the_claim_is_not_valid_without_a_start_if_the_name_had_another_pod(self) -> None:
        node = Cluster()
        node.pods(pod("a", uid="1"), pod("b"))
        node.kubelet(kubelet_claim("a", A))
        node.delete("a", uid="1")
        node.upsert(pod("a", uid="2", started=None))
        node.emit("pods", SourceLost("the API server can't be reached"))
        assert node.held() == {}

    def test_an_annotation_counts_after_the_pod_was_admitted(self) -> None:
        node = Cluster()
        node.pods(pod("a", started=None, claims=[annotation_claim("a", A)]))
        assert node.held() == {}
        node.upsert(pod("a", started=3, claims=[annotation_claim("a", A)]))
        assert node.held() == {A: ["a/main"]}


def test_deleted_pods_without_claims_leave_no_state() -> None:
    """A cluster creates and deletes pods for months next to one that holds a GPU."""
    node = Cluster()
    node.pods(pod("a"))
    node.kubelet(kubelet_claim("a", A))
    table = node.join._attributor.pods._by_source["pods"]
    sizes = []
    for number in range(1000):
        node.seconds += 5
        node.upsert(pod(f"job-{number}", wants=False))
        node.delete(f"job-{number}")
        sizes.append(len(table._deleted))
    assert max(sizes[500:]) == max(sizes[250:500])


class TestContainers:
    def test_a_claim_on_the_pod_means_its_only_container(self) -> None:
        node = Cluster()
        node.pods(
            pod("a", container("prepare", "init"), container("main"), container("x", "ephemeral"))
        )
        node.file(annotation_claim("a", A))
        assert node.held() == {A: ["a/main"]}

    @pytest.mark.parametrize("kind", ["app", "sidecar"])
    def test_a_claim_on_a_pod_of_two_containers_names_neither(self, kind: str) -> None:
        node = Cluster()
        node.pods(pod("a", container("main"), container("other", kind)))
        node.file(annotation_claim("a", A))
        assert node.held() == {A: ["a/"]}

    def test_a_pod_without_containers_holds_devices_as_a_whole(self) -> None:
        node = Cluster()
        node.pods(replace(pod("a"), containers=()))
        node.file(annotation_claim("a", A))
        node.kubelet(kubelet_claim("a", f"{B}-3", container="ghost"))
        assert node.held() == {A: ["a/"]}

    def test_a_completed_only_container_holds_its_gpu_until_the_pod_has_ended(self) -> None:
        node = Cluster()
        node.pods(pod("a", container(ended=True)))
        node.kubelet(kubelet_claim("a", A))
        assert node.held() == {A: ["a/main"]}

    def test_a_restarted_container_continues_its_holding(self) -> None:
        node = Cluster()
        node.pods(pod("a", container(container_id="c1", started=1)))
        node.runtime(runtime_claim("a", A, container_id="c1"))
        since = node.attribution(A).holders[0].since
        node.seconds = 50
        node.upsert(pod("a", container(container_id="c2", started=49)))
        node.runtime(runtime_claim("a", A, container_id="c2"))
        [holder] = node.attribution(A).holders
        assert (holder.since, holder.subject.container_id) == (since, "c2")


class TestSilentSources:
    def test_pods_expire_after_their_max_age(self) -> None:
        node = Cluster()
        node.pods(pod("a"))
        node.seconds = 100
        node.kubelet(kubelet_claim("a", A))
        node.tick(GOOD_FOR)
        assert node.attribution(A).holders[0].pod is not None
        node.tick(GOOD_FOR + 1)
        [holder] = node.attribution(A).holders
        # The UID of the name stays known for as long as the name is listed without a break.
        assert (holder.subject.pod, holder.subject.uid, holder.pod) == ("a", uid_of("a"), None)
        node.kubelet()
        node.kubelet(kubelet_claim("a", A))
        assert node.attribution(A).holders[0].subject.uid == ""

    def test_annotations_expire_with_their_pods(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotation_claim("a", A)]))
        node.tick(GOOD_FOR + 1)
        assert node.held() == {}

    @pytest.mark.parametrize(
        "event", [PodUpserted(pod("b")), PodDeleted("unknown"), pod_list(POD_WITH_A)]
    )
    def test_any_event_of_the_source_confirms_all_pods(self, event: Event) -> None:
        node = Cluster()
        node.pods(POD_WITH_A)
        node.seconds = 200
        node.emit("pods", event)
        node.tick(GOOD_FOR + 150)
        assert node.held() == {A: ["a/main"]}

    def test_changes_before_the_first_list_have_no_effect(self) -> None:
        node = Cluster()
        node.upsert(pod("a", claims=[annotation_claim("a", A)]))
        node.delete("a")
        assert node.held() == {}
        node.pods()
        node.kubelet(kubelet_claim("a", A))
        assert node.held() == {A: ["a/main"]}

    def test_pods_are_removed_with_their_source(self) -> None:
        node = Cluster()
        node.pods(pod("a", claims=[annotation_claim("a", A)]))
        node.kubelet(kubelet_claim("a", B))
        node.emit("pods", SourceRemoved())
        assert node.held() == {B: ["a/main"]}
        assert node.attribution(B).holders[0].pod is None


class TestTwoSourcesOfPods:
    def test_the_earlier_source_counts_and_the_later_one_fills_gaps(self) -> None:
        node = Cluster()
        node.say(SourceAdded(9), "more pods", "pods")
        first, second = pod("a"), replace(pod("a"), info=replace(pod("a").info, phase="Running"))
        node.say(pod_list(second, pod("b")), "more pods", "pods")
        node.pods(first)
        node.kubelet(kubelet_claim("a", A), kubelet_claim("b", B))
        assert node.attribution(A).holders[0].pod is first.info
        assert node.attribution(B).holders[0].pod == pod("b").info
        node.emit("pods", SourceRemoved())
        assert node.attribution(A).holders[0].pod == second.info


def test_a_pod_that_is_listed_twice_is_one_pod() -> None:
    node = Cluster()
    node.pods(pod("a", started=None), pod("a", started=0))
    node.kubelet(kubelet_claim("a", A))
    assert node.held() == {A: ["a/main"]}
    node.delete("a")
    assert node.held() == {}


def test_empty_names_match_no_pod() -> None:
    node = Cluster()
    nameless = replace(pod("a"), info=replace(pod("a").info, uid="", namespace="", name=""))
    node.pods(nameless, pod("b"))
    node.kubelet(kubelet_claim("", A, container=""), kubelet_claim("b", B, container=""))
    node.checkpoint(checkpoint_claim("", A, container=""))
    node.emit("pods", PodDeleted(""))
    assert node.held()[B] == ["b/main"]


def test_hints_name_pods_to_which_the_kubelet_may_have_allocated_devices() -> None:
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


def test_a_pod_without_claims_changes_nothing() -> None:
    node = Cluster()
    node.pods(pod("a"))
    node.kubelet(kubelet_claim("a", A))
    layout = node.snapshot().layout
    assert node.emit("pods", PodUpserted(pod("b", wants=False))) is False
    assert node.emit("pods", PodDeleted(uid_of("b"))) is False
    assert node.snapshot().layout is layout


@pytest.mark.slow
def test_short_lived_pods_leave_no_state() -> None:
    """Pods of one second each, whose names and containers never come back."""
    node = Cluster()
    node.pods()
    for number in range(1_300):
        node.seconds += 1
        name = f"p{number}"
        node.upsert(pod(name))
        node.kubelet(kubelet_claim(name, f"{A}::{number}", container="not in the pod's spec"))
        node.upsert(pod(name, ended=True))
        node.delete(name)
    pods = node.join._attributor.pods
    [table] = pods._by_rank
    assert (len(table.pods), len(table._by_identifier), len(table._admitted_ns)) == (0, 0, 0)
    assert len(pods._subjects) == 0
    # UID and name of each pod of the last ten minutes.
    assert len(table._deleted) <= 2 * (TEN_MINUTES + 2)


def test_many_pods_that_end_at_the_same_time_hold_nothing() -> None:
    node = Cluster()
    node.pods(*(pod(f"p{number}") for number in range(100)))
    node.kubelet(*(kubelet_claim(f"p{number}", A) for number in range(100)))
    for number in range(100):
        node.delete(f"p{number}")
    assert node.held() == {}


def test_claims_from_the_same_time_as_the_pod_s_start_mean_the_pod() -> None:
    node = Cluster()
    event: ClaimsReplaced | PodsReplaced
    for event, source in (
        (pod_list(pod("a", started=2)), "pods"),
        (claim_list(kubelet_claim("a", A)), "kubelet"),
    ):
        node.seconds = 2
        node.emit(source, event)
    assert node.held() == {A: ["a/main"]}
    assert node.attribution(A).holders[0].since.mono_ns == moment(2).mono_ns
    assert moment(2).mono_ns - moment(0).mono_ns == 2 * NS
