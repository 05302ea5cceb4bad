"""Which pod a name and a uid are, whenever each source was heard: stories, and many made up."""

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
    kept,
    listed,
    pod,
    relist,
    said,
    uid_of,
    whole,
)
from tests.pipeline.join.stories import Story
from tests.pipeline.join.watched import Watched, ids, ran_by
from tests.pipeline.usage.looking import S, use
from tests.support.nodes import at


def subjects(node: Cluster, device: str = A) -> list[tuple[str, str]]:
    return [(h.subject.pod, h.subject.uid) for h in node.on(device).holders]


@given(st.integers(0, 1 << 40))
@settings(max_examples=200, deadline=None)
def test_no_pair_is_untrue_no_one_is_half_known_and_each_sum_is_exact(seed: int) -> None:
    """Sources are asked at moments of their own, lag behind, or aren't there; podgpu restarts."""
    assert Story(seed).play() == []


class TestT9:
    """Without `pods`: the list has names, the checkpoint uids."""

    def replaced(self, node: Cluster) -> None:
        """`a` ends, and `b` gets its GPU; the checkpoint still has the uid of `a`."""
        node.kubelet(listed("a", A))
        node.checkpoint(kept("u1", A))
        assert subjects(node) == [("a", "u1")]
        node.seconds = 5
        node.kubelet(listed("b", A))

    def test_t9_a_new_pod_with_an_old_uid_has_no_uid(self) -> None:
        node = Cluster()
        self.replaced(node)
        assert subjects(node) == [("b", "")]
        # However often that is told again.
        node.checkpoint(kept("u1", A))
        node.kubelet(listed("b", A))
        assert subjects(node) == [("b", "")]

    def test_t9_it_has_its_own_once_that_is_reported(self) -> None:
        node = Cluster()
        self.replaced(node)
        node.checkpoint(kept("u2", A))
        node.kubelet(listed("b", A))
        node.checkpoint(kept("u2", A))
        assert subjects(node) == [("b", "u2")]

    def test_t9_a_list_that_is_older_than_the_uid_does_not_name_it(self) -> None:
        """The list is from before `b` came, or its source has only just begun."""
        node = Cluster()
        node.kubelet(listed("a", A))
        node.seconds = 3
        node.checkpoint(kept("u2", A))
        assert subjects(node) == [("a", "")]
        node.kubelet(listed("b", A))
        assert subjects(node) == [("b", "u2")]

    def test_t9_nor_is_a_name_given_a_uid_that_was_reported_before_alone(self) -> None:
        node = Cluster()
        node.checkpoint(kept("u1", A))
        node.seconds = 3
        node.kubelet(listed("b", A))
        assert subjects(node) == [("b", "")]
        node.seconds = 4
        node.checkpoint(kept("u1", A))
        assert subjects(node) == [("b", "u1")]

    def test_t9_sources_are_asked_again_for_what_may_be_one_pod(self) -> None:
        node = Cluster()
        node.checkpoint(kept("u1", A))
        node.seconds = 3
        given_out = Envelope("kubelet", "kubelet", 1, at(3), whole(listed("b", A)))
        assert [hint.sources for hint in node.join.apply(given_out).hints] == [{"kubelet"}]

    def test_t9_the_pair_outlives_a_checkpoint_that_lacks_it_for_a_while(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(kept("u1", A))
        node.checkpoint()
        assert subjects(node) == [("a", "u1")]
        node.tell("checkpoint", SourceLost("no such file"))
        node.seconds = 400
        node.kubelet(listed("a", A))
        assert subjects(node) == [("a", "u1")]

    def test_t9_a_name_that_left_the_list_or_has_other_devices_is_another_pod(self) -> None:
        node = Cluster()
        node.kubelet(listed("a", A))
        node.checkpoint(kept("u1", A))
        node.checkpoint()
        node.kubelet(listed("a", B))
        assert subjects(node, B) == [("a", "")]
        node.kubelet()
        node.kubelet(listed("a", A))
        assert subjects(node) == [("a", "")]

    def test_t9_who_states_both_corrects_a_pair_that_was_put_together(self) -> None:
        node = Cluster()
        node.kubelet(listed("b", A))
        node.checkpoint(kept("u1", A))
        assert subjects(node) == [("b", "u1")]
        node.tell("runtime", ContainersReplaced((ran("c", "u1", B),), 300 * NS))
        assert ("b", "u1") not in subjects(node)
        assert subjects(node, B) == [("c", "u1")]
        node.tell("runtime", ContainersReplaced((), 300 * NS))
        assert ("b", "u1") not in subjects(node)

    @pytest.mark.parametrize("by", ["pods", "runtime"])
    def test_t9_who_stated_both_is_remembered(self, by: str) -> None:
        node = Cluster()
        if by == "pods":
            node.pods(pod("a", uid="u1"))
        else:
            node.tell("runtime", ContainersReplaced((ran("a", "u1", A),), 300 * NS))
        node.kubelet(listed("a", A))
        assert subjects(node) == [("a", "u1")]
        if by == "pods":
            node.tell("pods", SourceLost("the API server can't be reached"))
        else:
            node.tell("runtime", ContainerStopped("c-u1"))
        for node.seconds in range(100, 1000, 100):
            node.kubelet(listed("a", A))
        assert subjects(node) == [("a", "u1")]

    def test_t9_what_no_one_names_is_forgotten(self) -> None:
        node = Cluster()
        for number in range(200):
            node.seconds = number * 60
            node.kubelet(listed(f"p{number}", A))
            node.checkpoint(kept(f"u{number}", A))
            assert subjects(node) == [(f"p{number}", f"u{number}")]
        pairs = node.join._attributor._pod_identities
        assert len(pairs._names_by_uid) <= RETENTION_NS // (60 * NS) + 1
        assert (
            max(len(pairs._listed_names), len(pairs._report_times), len(pairs._first_match_ns)) <= 2
        )

    def test_t9_a_stale_checkpoint_shows_no_one_beside_the_holder(self) -> None:
        """Podgpu and the kubelet have just been restarted: the list may not be complete yet."""
        node = Cluster()
        node.checkpoint(kept("gone", A), kept("gone", B, container="other"))
        node.seconds = 1
        node.kubelet(listed("b", A), complete=False)
        assert subjects(node) == [("b", "")]
        assert subjects(node, B) == [("", "gone")]


class TestT11:
    """What counts is what is known of the moment that a look speaks of."""

    def test_t11_a_look_of_before_all_sources_spoke_is_passed_over(self) -> None:
        node = Watched()
        node.say(SourceAdded(9), "names", "pods")
        node.kubelet(listed("a", A))
        node.seconds = 1.5
        node.say(relist(pod("a", started=-100)), "names", "pods")
        node.look(0, use(A, 0, None, ran_by(ids("a"), busy=None)), heard=2)
        assert node.used().devices == {}
        node.look(3, use(A, 3, 0, ran_by(ids("a")), busy=S), heard=3)
        node.look(5, use(A, 5, 3, ran_by(ids("a")), busy=S), heard=5)
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert node.sole().held_ns == 2 * S

    @pytest.mark.parametrize("heard", [5, 6])
    def test_t11_a_name_whose_uid_is_reported_later_continues_under_both(
        self, heard: float
    ) -> None:
        """A source of pods that was away for long."""
        node = Watched()
        node.kubelet(listed("a", A))
        node.look(0, use(A, 0, None))
        node.look(2, use(A, 2, 0, ran_by(ids("a", ""), busy=S), busy=S))
        assert {one[3] for one in node.containers()} == {"", uid_of("a")}
        node.seconds = 4
        node.pods(pod("a", started=-100))
        node.look(5, use(A, 5, 2, ran_by(ids("a", "")), busy=S), heard=heard)
        [one] = node.account().containers
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert (one.held_ns, one.busy_ns, one.start) == (5 * S, 2 * S, node.account().start)
        assert one.holding is not None
        assert (one.holding.held_ns, one.holding.counted_ns) == (5 * S, 5 * S)
        assert ended(node) == ()

    def test_t11_the_name_of_a_pod_of_before_keeps_what_it_had(self) -> None:
        node = Watched()
        node.kubelet(listed("a", A))
        node.look(0, use(A, 0, None))
        node.look(2, use(A, 2, 0))
        node.seconds = 6
        node.pods(pod("a", started=4))
        node.kubelet(listed("a", A))
        node.look(8, use(A, 8, 2))
        found = {one.subject.uid: one.held_ns for one in node.account().containers}
        assert found == {"": 6 * S, uid_of("a"): 2 * S}

    def test_t11_the_checkpoint_drops_a_pod_before_the_list_does(self) -> None:
        node = Watched()
        node.kubelet(listed("a", A))
        node.checkpoint(kept(uid_of("a"), A))
        node.look(0, use(A, 0, None, ran_by(ids("a"), busy=None)))
        node.seconds = 3
        node.checkpoint()
        node.look(4, use(A, 4, 0, ran_by(ids("a")), busy=S))
        node.seconds = 5
        node.kubelet()
        node.look(6, use(A, 6, 4))
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert (node.sole().held_ns, node.sole().busy_ns) == (5 * S, S)
        assert [one.subject.uid for one in ended(node)] == [uid_of("a")]

    def test_t11_a_container_that_is_known_by_its_uid_alone_is_named_later(self) -> None:
        """Its processes were seen before any source told of its pod, and so was its end."""
        node = Watched()
        node.pods()
        node.look(0, use(A, 0, None))
        node.look(2, use(A, 2, 0, ran_by(ids("a")), busy=S))
        assert node.containers() == [("", "", "", uid_of("a"))]
        node.upsert(pod("a"))
        node.look(4, use(A, 4, 2))
        assert node.containers() == [("ml", "a", "main", uid_of("a"))]
        assert [one.subject.pod for one in ended(node)] == ["a"]

    def test_t11_a_name_without_uid_that_ended_is_not_continued(self) -> None:
        node = Watched()
        node.kubelet(listed("a", A))
        node.look(0, use(A, 0, None))
        for when, claims in ((2, ()), (4, (listed("a", A),))):
            node.look(when, use(A, when, when - 2))
            node.kubelet(*claims)
        node.look(6, use(A, 6, 4))
        assert node.sole().held_ns == 2 * S
        assert node.account().forgotten_held_ns == 2 * S


class TestT13:
    """A static pod's own uid is what stays: its mirror may be deleted and made again."""

    MIRROR = pod("etcd-node-1", uid="m1", static_uid="hash")

    @pytest.mark.parametrize("checkpoint", [True, False])
    def test_t13_its_identity_stays_when_its_mirror_is_made_again(
        self, *, checkpoint: bool
    ) -> None:
        node = Watched()
        node.pods(self.MIRROR)
        found = []

        def tell() -> None:
            node.kubelet(listed("etcd-node-1", A))
            if checkpoint:
                node.checkpoint(kept("hash", A))
            found.extend(subjects(node))

        steps: list[Callable[[], object]] = [
            lambda: node.delete("", uid="m1"),
            lambda: node.upsert(pod("etcd-node-1", uid="m2", static_uid="hash", started=None)),
            lambda: node.upsert(pod("etcd-node-1", uid="m2", static_uid="hash", started=0)),
        ]
        tell()
        node.look(0, use(A, 0, None, ran_by(owner("hash"), busy=None)))
        for number, step in enumerate(steps, 1):
            node.seconds = 2 * number - 1
            step()
            tell()
            when = 2 * number
            node.look(when, use(A, when, when - 2, ran_by(owner("hash")), busy=S))
        assert set(found) == {("etcd-node-1", "hash")}
        assert node.containers() == [("ml", "etcd-node-1", "main", "hash")]
        assert (node.sole().held_ns, node.sole().busy_ns, ended(node)) == (6 * S, 3 * S, ())

    @pytest.mark.parametrize("gap", [True, False])
    def test_t13_a_forged_mirror_does_not_get_the_identity(self, *, gap: bool) -> None:
        """Whoever creates a pod may write that it is the mirror of any, also without one."""
        node = Watched()
        node.pods(self.MIRROR)
        node.kubelet(listed("etcd-node-1", A))
        if gap:
            node.delete("", uid="m1")
        node.upsert(pod("evil", uid="e1", static_uid="hash"))
        node.seconds = 1
        node.kubelet(listed("etcd-node-1", A), listed("evil", B))
        node.checkpoint(kept("hash", A), kept("e1", B))
        assert (subjects(node), subjects(node, B)) == ([("etcd-node-1", "hash")], [("evil", "e1")])
        node.upsert(pod("etcd-node-1", uid="m2", static_uid="hash"))
        assert (subjects(node), subjects(node, B)) == ([("etcd-node-1", "hash")], [("evil", "e1")])


def owner(uid: str) -> PartialRef:
    return PartialRef(uid=uid, container_id="1")


def ran(name: str, uid: str, device: str) -> RunningContainer:
    subject = PartialRef("ml", name, "main", uid, f"c-{uid}")
    return RunningContainer(
        subject, claims=(said(Evidence.RUNTIME_NODES, subject, [device], "visible"),)
    )


def ended(node: Watched) -> tuple[Holding, ...]:
    return node.used().ended
