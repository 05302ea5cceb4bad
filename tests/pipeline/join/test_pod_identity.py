"""Which pod name and which UID belong together, at whatever times the sources report them."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.join.pod_identity import RETENTION_NS
from pipeline.model import (
    NS,
    ContainersReplaced,
    ContainerStopped,
    Envelope,
    Evidence,
    Holding,
    PartialRef,
    RunningContainer,
    SourceAdded,
    SourceLost,
)
from tests.pipeline.join.cluster import (
    A,
    B,
    Cluster,
    checkpoint_claim,
    claim_list,
    kubelet_claim,
    make_claim,
    pod,
    pod_list,
    uid_of,
)
from tests.pipeline.join.sampled_cluster import SampledCluster, cgroup_owner, process_of
from tests.pipeline.join.scenarios import Scenario
from tests.pipeline.usage.samples import S, use
from tests.support.examples import examples
from tests.support.nodes import at


def subjects(node: Cluster, device: str = A) -> list[tuple[str, str]]:
    return [(h.subject.pod, h.subject.uid) for h in node.attribution(device).holders]


@pytest.mark.slow
@given(st.integers(0, 1 << 40))
@settings(max_examples=examples(200), deadline=None)
def test_names_and_uids_are_paired_correctly_and_every_sum_is_exact(seed: int) -> None:
    """Sources report at different times, late or not at all, and podgpu restarts."""
    assert Scenario(seed).play() == []


class TestT9NamesWithoutPods:
    """Without a source of pods, the kubelet's list has names and the checkpoint has UIDs."""

    def replace_pod(self, node: Cluster) -> None:
        """`a` ends, and `b` gets its GPU; the checkpoint still has the uid of `a`."""
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(checkpoint_claim("u1", A))
        assert subjects(node) == [("a", "u1")]
        node.seconds = 5
        node.kubelet(kubelet_claim("b", A))

    def test_t9_a_new_pod_does_not_get_the_uid_of_its_predecessor(self) -> None:
        node = Cluster()
        self.replace_pod(node)
        assert subjects(node) == [("b", "")]
        # The result does not change when it is reported again.
        node.checkpoint(checkpoint_claim("u1", A))
        node.kubelet(kubelet_claim("b", A))
        assert subjects(node) == [("b", "")]

    def test_t9_a_new_pod_gets_its_uid_when_it_is_reported(self) -> None:
        node = Cluster()
        self.replace_pod(node)
        node.checkpoint(checkpoint_claim("u2", A))
        node.kubelet(kubelet_claim("b", A))
        node.checkpoint(checkpoint_claim("u2", A))
        assert subjects(node) == [("b", "u2")]

    def test_t9_a_list_that_is_older_than_the_uid_does_not_name_the_pod(self) -> None:
        """The list was made before `b` started, or its source has only just started."""
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.seconds = 3
        node.checkpoint(checkpoint_claim("u2", A))
        assert subjects(node) == [("a", "")]
        node.kubelet(kubelet_claim("b", A))
        assert subjects(node) == [("b", "u2")]

    def test_t9_a_name_gets_no_uid_that_was_reported_only_before_it(self) -> None:
        node = Cluster()
        node.checkpoint(checkpoint_claim("u1", A))
        node.seconds = 3
        node.kubelet(kubelet_claim("b", A))
        assert subjects(node) == [("b", "")]
        node.seconds = 4
        node.checkpoint(checkpoint_claim("u1", A))
        assert subjects(node) == [("b", "u1")]

    def test_t9_a_possible_match_causes_a_hint_for_new_reports(self) -> None:
        node = Cluster()
        node.checkpoint(checkpoint_claim("u1", A))
        node.seconds = 3
        envelope = Envelope("kubelet", "kubelet", 1, at(3), claim_list(kubelet_claim("b", A)))
        assert [hint.sources for hint in node.join.apply(envelope).hints] == [{"kubelet"}]

    def test_t9_a_pair_stays_known_when_the_checkpoint_lacks_it(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(checkpoint_claim("u1", A))
        node.checkpoint()
        assert subjects(node) == [("a", "u1")]
        node.emit("checkpoint", SourceLost("no such file"))
        node.seconds = 400
        node.kubelet(kubelet_claim("a", A))
        assert subjects(node) == [("a", "u1")]

    def test_t9_a_name_that_was_unlisted_or_has_other_devices_is_another_pod(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(checkpoint_claim("u1", A))
        node.checkpoint()
        node.kubelet(kubelet_claim("a", B))
        assert subjects(node, B) == [("a", "")]
        node.kubelet()
        node.kubelet(kubelet_claim("a", A))
        assert subjects(node) == [("a", "")]

    def test_t9_a_source_of_both_name_and_uid_corrects_a_matched_pair(self) -> None:
        node = Cluster()
        node.kubelet(kubelet_claim("b", A))
        node.checkpoint(checkpoint_claim("u1", A))
        assert subjects(node) == [("b", "u1")]
        node.emit("runtime", ContainersReplaced((running_container("c", "u1", B),), 300 * NS))
        assert ("b", "u1") not in subjects(node)
        assert subjects(node, B) == [("c", "u1")]
        node.emit("runtime", ContainersReplaced((), 300 * NS))
        assert ("b", "u1") not in subjects(node)

    @pytest.mark.parametrize("by", ["pods", "runtime"])
    def test_t9_a_pair_that_a_source_reported_is_remembered(self, by: str) -> None:
        node = Cluster()
        if by == "pods":
            node.pods(pod("a", uid="u1"))
        else:
            node.emit("runtime", ContainersReplaced((running_container("a", "u1", A),), 300 * NS))
        node.kubelet(kubelet_claim("a", A))
        assert subjects(node) == [("a", "u1")]
        if by == "pods":
            node.emit("pods", SourceLost("the API server can't be reached"))
        else:
            node.emit("runtime", ContainerStopped("c-u1"))
        for node.seconds in range(100, 1000, 100):
            node.kubelet(kubelet_claim("a", A))
        assert subjects(node) == [("a", "u1")]

    @pytest.mark.slow
    def test_t9_pairs_that_are_no_longer_reported_are_forgotten(self) -> None:
        node = Cluster()
        for number in range(200):
            node.seconds = number * 60
            node.kubelet(kubelet_claim(f"p{number}", A))
            node.checkpoint(checkpoint_claim(f"u{number}", A))
            assert subjects(node) == [(f"p{number}", f"u{number}")]
        pairs = node.join._attributor._pod_identities
        assert len(pairs._names_by_uid) <= RETENTION_NS // (60 * NS) + 1
        assert (
            max(len(pairs._listed_names), len(pairs._report_times), len(pairs._first_match_ns)) <= 2
        )

    def test_t9_a_stale_checkpoint_adds_no_second_holder(self) -> None:
        """podgpu and the kubelet have just restarted: the list may be incomplete."""
        node = Cluster()
        node.checkpoint(checkpoint_claim("gone", A), checkpoint_claim("gone", B, container="other"))
        node.seconds = 1
        node.kubelet(kubelet_claim("b", A), complete=False)
        assert subjects(node) == [("b", "")]
        assert subjects(node, B) == [("", "gone")]


class TestT11TimeOfSamples:
    """A usage sample is attributed by what is known about the time when it was taken."""

    def test_t11_a_sample_from_before_all_sources_reported_is_ignored(self) -> None:
        node = SampledCluster()
        node.say(SourceAdded(9), "names", "pods")
        node.kubelet(kubelet_claim("a", A))
        node.seconds = 1.5
        node.say(pod_list(pod("a", started=-100)), "names", "pods")
        node.sample(0, use(A, 0, None, process_of(cgroup_owner("a"), busy=None)), received=2)
        assert node.used().devices == {}
        node.sample(3, use(A, 3, 0, process_of(cgroup_owner("a")), busy=S), received=3)
        node.sample(5, use(A, 5, 3, process_of(cgroup_owner("a")), busy=S), received=5)
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert node.only_container().held_ns == 2 * S

    @pytest.mark.parametrize("received", [5, 6])
    def test_t11_a_name_whose_uid_is_reported_later_keeps_its_account(
        self, received: float
    ) -> None:
        """The source of pods was away for a long time."""
        node = SampledCluster()
        node.kubelet(kubelet_claim("a", A))
        node.sample(0, use(A, 0, None))
        node.sample(2, use(A, 2, 0, process_of(cgroup_owner("a", ""), busy=S), busy=S))
        assert {one[3] for one in node.containers()} == {"", uid_of("a")}
        node.seconds = 4
        node.pods(pod("a", started=-100))
        node.sample(5, use(A, 5, 2, process_of(cgroup_owner("a", "")), busy=S), received=received)
        [one] = node.account().containers
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert (one.held_ns, one.busy_ns, one.start) == (5 * S, 2 * S, node.account().start)
        assert one.holding is not None
        assert (one.holding.held_ns, one.holding.counted_ns) == (5 * S, 5 * S)
        assert ended(node) == ()

    def test_t11_the_account_of_an_earlier_pod_of_the_name_stays_separate(self) -> None:
        node = SampledCluster()
        node.kubelet(kubelet_claim("a", A))
        node.sample(0, use(A, 0, None))
        node.sample(2, use(A, 2, 0))
        node.seconds = 6
        node.pods(pod("a", started=4))
        node.kubelet(kubelet_claim("a", A))
        node.sample(8, use(A, 8, 2))
        found = {one.subject.uid: one.held_ns for one in node.account().containers}
        assert found == {"": 6 * S, uid_of("a"): 2 * S}

    def test_t11_a_pod_that_leaves_the_checkpoint_first_keeps_its_account(self) -> None:
        node = SampledCluster()
        node.kubelet(kubelet_claim("a", A))
        node.checkpoint(checkpoint_claim(uid_of("a"), A))
        node.sample(0, use(A, 0, None, process_of(cgroup_owner("a"), busy=None)))
        node.seconds = 3
        node.checkpoint()
        node.sample(4, use(A, 4, 0, process_of(cgroup_owner("a")), busy=S))
        node.seconds = 5
        node.kubelet()
        node.sample(6, use(A, 6, 4))
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert (node.only_container().held_ns, node.only_container().busy_ns) == (5 * S, S)
        assert [one.subject.uid for one in ended(node)] == [uid_of("a")]

    def test_t11_a_container_known_only_by_its_uid_is_named_later(self) -> None:
        """Its processes, and its end, were seen before any source reported its pod."""
        node = SampledCluster()
        node.pods()
        node.sample(0, use(A, 0, None))
        node.sample(2, use(A, 2, 0, process_of(cgroup_owner("a")), busy=S))
        assert node.containers() == [("", "", "", uid_of("a"))]
        node.upsert(pod("a"))
        node.sample(4, use(A, 4, 2))
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert [one.subject.pod for one in ended(node)] == ["a"]

    def test_t11_the_account_of_an_ended_name_without_uid_is_not_continued(self) -> None:
        node = SampledCluster()
        node.kubelet(kubelet_claim("a", A))
        node.sample(0, use(A, 0, None))
        for when, claims in ((2, ()), (4, (kubelet_claim("a", A),))):
            node.sample(when, use(A, when, when - 2))
            node.kubelet(*claims)
        node.sample(6, use(A, 6, 4))
        assert node.only_container().held_ns == 2 * S
        assert node.account().forgotten_held_ns == 2 * S


class TestT13StaticPods:
    """The identity of a static pod is its own UID: its mirror pod may be deleted and recreated."""

    MIRROR = pod("etcd-node-1", uid="m1", static_uid="hash")

    @pytest.mark.parametrize("checkpoint", [True, False])
    def test_t13_a_static_pod_keeps_its_identity_when_its_mirror_is_recreated(
        self, *, checkpoint: bool
    ) -> None:
        node = SampledCluster()
        node.pods(self.MIRROR)
        found = []

        def report() -> None:
            node.kubelet(kubelet_claim("etcd-node-1", A))
            if checkpoint:
                node.checkpoint(checkpoint_claim("hash", A))
            found.extend(subjects(node))

        steps: list[Callable[[], object]] = [
            lambda: node.delete("", uid="m1"),
            lambda: node.upsert(pod("etcd-node-1", uid="m2", static_uid="hash", started=None)),
            lambda: node.upsert(pod("etcd-node-1", uid="m2", static_uid="hash", started=0)),
        ]
        report()
        node.sample(0, use(A, 0, None, process_of(owner("hash"), busy=None)))
        for number, step in enumerate(steps, 1):
            node.seconds = 2 * number - 1
            step()
            report()
            when = 2 * number
            node.sample(when, use(A, when, when - 2, process_of(owner("hash")), busy=S))
        assert set(found) == {("etcd-node-1", "hash")}
        assert node.containers() == [("ml", "etcd-node-1", "main", "hash")]
        assert (node.only_container().held_ns, node.only_container().busy_ns, ended(node)) == (
            6 * S,
            3 * S,
            (),
        )

    @pytest.mark.parametrize("gap", [True, False])
    def test_t13_a_forged_mirror_does_not_get_the_identity_of_the_static_pod(
        self, *, gap: bool
    ) -> None:
        """A pod's author can claim to be the mirror of any pod, also while it has no mirror."""
        node = SampledCluster()
        node.pods(self.MIRROR)
        node.kubelet(kubelet_claim("etcd-node-1", A))
        if gap:
            node.delete("", uid="m1")
        node.upsert(pod("evil", uid="e1", static_uid="hash"))
        node.seconds = 1
        node.kubelet(kubelet_claim("etcd-node-1", A), kubelet_claim("evil", B))
        node.checkpoint(checkpoint_claim("hash", A), checkpoint_claim("e1", B))
        assert (subjects(node), subjects(node, B)) == ([("etcd-node-1", "hash")], [("evil", "e1")])
        node.upsert(pod("etcd-node-1", uid="m2", static_uid="hash"))
        assert (subjects(node), subjects(node, B)) == ([("etcd-node-1", "hash")], [("evil", "e1")])


def owner(uid: str) -> PartialRef:
    return PartialRef(uid=uid, container_id="1")


def running_container(name: str, uid: str, device: str) -> RunningContainer:
    subject = PartialRef("ml", name, "main", uid, f"c-{uid}")
    return RunningContainer(
        subject, claims=(make_claim(Evidence.RUNTIME_NODES, subject, [device], "visible"),)
    )


def ended(node: SampledCluster) -> tuple[Holding, ...]:
    return node.used().ended
