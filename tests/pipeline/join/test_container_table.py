"""Containers that the runtime tells of: what they were given holds for as long as they run."""

from dataclasses import replace

import pytest

from pipeline.model import (
    NS,
    Claim,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    Envelope,
    Event,
    Hint,
    RunningContainer,
    SourceLost,
    SourceRemoved,
)
from tests.pipeline.join.cluster import GOOD_FOR, A, B, Cluster, kept, listed, pod, ran, uid_of
from tests.support.nodes import at


def running(name: str, *ids: str, container: str = "main", pid: int | None = 7) -> RunningContainer:
    claim = ran(name, *ids, container=container, container_id=f"c-{name}-{container}")
    return RunningContainer(claim.subject, pid, claims=(claim,) if ids else ())


def whole(*containers: RunningContainer) -> ContainersReplaced:
    return ContainersReplaced(containers, GOOD_FOR * NS)


def hints(node: Cluster, event: Event) -> tuple[Hint, ...]:
    return node.join.apply(Envelope("runtime", "nri", 1, at(node.seconds), event)).hints


def test_a_container_holds_from_its_start_to_its_end() -> None:
    node = Cluster()
    node.tell("runtime", whole())
    node.tell("runtime", ContainerStarted(running("a", A)))
    assert node.held() == {A: ["a/main"]}
    assert node.on(A).holders[0].subject.container_id == "c-a-main"
    node.tell("runtime", ContainerStopped("c-a-main"))
    assert node.held() == {}


def test_both_say_in_which_pod_something_happened() -> None:
    node = Cluster()
    node.tell("runtime", whole())
    (started, moved) = hints(node, ContainerStarted(running("a", A)))
    assert (moved.devices, started.pods) == (frozenset({A}), frozenset({uid_of("a")}))
    assert started.sources == {"runtime"}
    # Of one that was given nothing as well: what the kubelet gave it may not be seen from there.
    (started,) = hints(node, ContainerStarted(running("b")))
    assert (started.devices, started.pods) == (frozenset(), frozenset({uid_of("b")}))
    assert [hint.pods for hint in hints(node, ContainerStopped("c-b-main"))] == [{uid_of("b")}]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ContainerStopped("c-unknown"), id="the end of one that nobody knew"),
        pytest.param(ContainerStarted(running("a", A)), id="the same once more"),
        pytest.param(whole(running("a", A)), id="all of them once more"),
    ],
)
def test_what_changes_nothing(event: Event) -> None:
    node = Cluster()
    node.tell("runtime", whole(running("a", A)))
    before = node.snapshot().layout
    assert hints(node, event) == ()
    assert node.snapshot().layout is before


def test_a_new_list_has_the_last_word() -> None:
    node = Cluster()
    node.tell("runtime", whole(running("a", A)))
    node.tell("runtime", whole(running("b", B)))
    assert node.held() == {B: ["b/main"]}


def test_before_the_first_list_nothing_counts() -> None:
    node = Cluster()
    node.tell("runtime", ContainerStarted(running("a", A)))
    assert node.held() == {}


def test_they_stand_for_their_time_and_no_longer() -> None:
    node = Cluster()
    node.tell("runtime", whole(running("a", A)))
    node.tell("runtime", SourceLost("end of file"))
    node.tick(GOOD_FOR)
    assert node.held() == {A: ["a/main"]}
    node.tick(GOOD_FOR + 1)
    assert node.held() == {}


def test_they_leave_with_their_source() -> None:
    node = Cluster()
    node.tell("runtime", whole(running("a", A)))
    node.tell("runtime", SourceRemoved())
    assert node.held() == {}


def test_their_pods_have_names_and_uids_for_those_who_lack_one() -> None:
    """Whatever they were given themselves: the kubelet and its checkpoint are brought together."""
    node = Cluster()
    node.tell("runtime", whole(running("a"), running("b")))
    node.kubelet(listed("a", A))
    node.checkpoint(kept(uid_of("b"), B))
    found = {uuid: on.holders[0].subject for uuid, on in attributions(node).items() if on.holders}
    assert {uuid: (ref.pod, ref.uid) for uuid, ref in found.items()} == {
        A: ("a", uid_of("a")),
        B: ("b", uid_of("b")),
    }


def attributions(node: Cluster):  # type: ignore[no-untyped-def]
    return node.snapshot().layout.attributions


def test_the_runtime_knows_better_than_the_api_server_what_runs() -> None:
    """A pod that was deleted by force goes on until its containers have ended."""
    node = Cluster()
    node.pods(pod("a"))
    node.tell("runtime", whole(running("a", A)))
    node.delete("a")
    assert node.held() == {A: ["a/main"]}
    node.tell("runtime", ContainerStopped("c-a-main"))
    assert node.held() == {}


def test_a_claim_s_container_is_the_one_that_runs() -> None:
    """The same container under a new id goes on holding since it first did."""
    node = Cluster()
    node.tell("runtime", whole(running("a", A)))
    since = node.on(A).holders[0].since
    node.seconds = 50
    again: Claim = ran("a", A, container_id="c-2")
    node.tell("runtime", whole(replace(running("a"), subject=again.subject, claims=(again,))))
    (holder,) = node.on(A).holders
    assert (holder.subject.container_id, holder.since) == ("c-2", since)
