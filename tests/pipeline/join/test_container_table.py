"""Containers that the runtime reports: they hold their devices for as long as they run."""

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
from tests.pipeline.join.cluster import (
    GOOD_FOR,
    A,
    B,
    Cluster,
    checkpoint_claim,
    kubelet_claim,
    pod,
    runtime_claim,
    uid_of,
)
from tests.support.nodes import at


def running(name: str, *ids: str, container: str = "main", pid: int | None = 7) -> RunningContainer:
    claim = runtime_claim(name, *ids, container=container, container_id=f"c-{name}-{container}")
    return RunningContainer(claim.subject, pid, claims=(claim,) if ids else ())


def container_list(*containers: RunningContainer) -> ContainersReplaced:
    return ContainersReplaced(containers, GOOD_FOR * NS)


def hints(node: Cluster, event: Event) -> tuple[Hint, ...]:
    return node.join.apply(Envelope("runtime", "nri", 1, at(node.seconds), event)).hints


def test_a_container_holds_its_device_from_start_to_end() -> None:
    node = Cluster()
    node.emit("runtime", container_list())
    node.emit("runtime", ContainerStarted(running("a", A)))
    assert node.held() == {A: ["a/main"]}
    assert node.attribution(A).holders[0].subject.container_id == "c-a-main"
    node.emit("runtime", ContainerStopped("c-a-main"))
    assert node.held() == {}


def test_start_and_end_of_a_container_cause_a_hint_with_its_pod() -> None:
    node = Cluster()
    node.emit("runtime", container_list())
    (started, moved) = hints(node, ContainerStarted(running("a", A)))
    assert (moved.devices, started.pods) == (frozenset({A}), frozenset({uid_of("a")}))
    assert started.sources == {"runtime"}
    # Also without claims: the runtime may not show what the kubelet allocated to the container.
    (started,) = hints(node, ContainerStarted(running("b")))
    assert (started.devices, started.pods) == (frozenset(), frozenset({uid_of("b")}))
    assert [hint.pods for hint in hints(node, ContainerStopped("c-b-main"))] == [{uid_of("b")}]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ContainerStopped("c-unknown"), id="end of an unknown container"),
        pytest.param(ContainerStarted(running("a", A)), id="the same start again"),
        pytest.param(container_list(running("a", A)), id="the same list again"),
    ],
)
def test_repeated_events_change_nothing(event: Event) -> None:
    node = Cluster()
    node.emit("runtime", container_list(running("a", A)))
    before = node.snapshot().layout
    assert hints(node, event) == ()
    assert node.snapshot().layout is before


def test_a_new_list_replaces_the_last_one() -> None:
    node = Cluster()
    node.emit("runtime", container_list(running("a", A)))
    node.emit("runtime", container_list(running("b", B)))
    assert node.held() == {B: ["b/main"]}


def test_events_before_the_first_list_have_no_effect() -> None:
    node = Cluster()
    node.emit("runtime", ContainerStarted(running("a", A)))
    assert node.held() == {}


def test_containers_of_a_lost_source_expire() -> None:
    node = Cluster()
    node.emit("runtime", container_list(running("a", A)))
    node.emit("runtime", SourceLost("end of file"))
    node.tick(GOOD_FOR)
    assert node.held() == {A: ["a/main"]}
    node.tick(GOOD_FOR + 1)
    assert node.held() == {}


def test_containers_are_removed_with_their_source() -> None:
    node = Cluster()
    node.emit("runtime", container_list(running("a", A)))
    node.emit("runtime", SourceRemoved())
    assert node.held() == {}


def test_containers_complete_pod_names_and_uids_of_other_sources() -> None:
    """Also without claims of their own: they connect the kubelet's list with its checkpoint."""
    node = Cluster()
    node.emit("runtime", container_list(running("a"), running("b")))
    node.kubelet(kubelet_claim("a", A))
    node.checkpoint(checkpoint_claim(uid_of("b"), B))
    found = {uuid: on.holders[0].subject for uuid, on in attributions(node).items() if on.holders}
    assert {uuid: (ref.pod, ref.uid) for uuid, ref in found.items()} == {
        A: ("a", uid_of("a")),
        B: ("b", uid_of("b")),
    }


def attributions(node: Cluster):  # type: ignore[no-untyped-def]
    return node.snapshot().layout.attributions


def test_a_running_container_holds_its_device_after_its_pod_was_deleted() -> None:
    """A pod that was deleted by force continues until its containers have ended."""
    node = Cluster()
    node.pods(pod("a"))
    node.emit("runtime", container_list(running("a", A)))
    node.delete("a")
    assert node.held() == {A: ["a/main"]}
    node.emit("runtime", ContainerStopped("c-a-main"))
    assert node.held() == {}


def test_a_restarted_container_continues_its_holding() -> None:
    """A container with a new id continues its holding."""
    node = Cluster()
    node.emit("runtime", container_list(running("a", A)))
    since = node.attribution(A).holders[0].since
    node.seconds = 50
    restarted: Claim = runtime_claim("a", A, container_id="c-2")
    node.emit(
        "runtime",
        container_list(replace(running("a"), subject=restarted.subject, claims=(restarted,))),
    )
    (holder,) = node.attribution(A).holders
    assert (holder.subject.container_id, holder.since) == ("c-2", since)
