"""Whose a process is: by its cgroup, by what is told of containers and pods, and by claims."""

from collections.abc import Iterable

import pytest

from pipeline.model import (
    NS,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    ContainerUsage,
    PartialRef,
    Pod,
    PodDeleted,
    PodUpserted,
    ProcessUse,
    RunningContainer,
)
from tests.pipeline.join.cluster import A, B, container, kept, listed, pod, ran, uid_of
from tests.pipeline.join.watched import Watched, ids, ran_by, running
from tests.pipeline.usage.looking import S, use
from tests.support.nodes import at

FULL = ("ml", "a", "main", uid_of("a"))
STATIC = ("ml", "a", "main", "uid-hash")
REPORTED = pod("a", container(container_id="1"))


@pytest.mark.parametrize(
    ("pods", "given_out", "owner", "expected"),
    [
        # The runtime knows its containers.
        ([], [running("a")], ids("a"), FULL),
        ([], [running("a")], ids("", "1"), FULL),
        (
            [],
            [running("a"), running("a", "2", "side")],
            ids("a", "2"),
            ("ml", "a", "side", "uid-a"),
        ),
        # The API server knows the pods.
        ([REPORTED], [], ids("a"), FULL),
        ([REPORTED], [], ids("", "1"), FULL),
        ([pod("a", container(), container("side"))], [], ids("a"), ("ml", "a", "", "uid-a")),
        ([pod("a", container("init", "init"), container())], [], ids("a"), FULL),
        # A static pod has the uid of the kubelet, not that of its mirror.
        ([pod("a", static_uid="uid-hash")], [], ids("hash"), STATIC),
        ([pod("a", static_uid="uid-hash")], [running("hash")], ids("hash"), STATIC),
        # Both, of which the one knows that the container is another.
        (
            [pod("a", container(container_id="7"), container("side"))],
            [running("a", "2", "side")],
            ids("a", "2"),
            ("ml", "a", "side", "uid-a"),
        ),
        # Nobody told of it: the uid stays, and the names are empty.
        ([pod("b")], [running("c", "9")], ids("a"), ("", "", "", "uid-a")),
    ],
)
def test_by_its_cgroup(
    *,
    pods: list[Pod],
    given_out: list[RunningContainer],
    owner: PartialRef,
    expected: tuple[str, ...],
) -> None:
    node = Watched()
    if pods:
        node.pods(*pods)
    node.tell("runtime", ContainersReplaced(tuple(given_out), 300 * NS))
    node.looks(ran_by(owner))
    assert node.containers() == [expected]
    assert node.sole().busy_ns == S
    assert node.sole().memory_bytes == 5
    assert (node.sole().pod is not None) == (expected[1] == "a" and bool(pods))


def test_by_those_who_hold_something() -> None:
    node = Watched()
    # The kubelet's list has names, its checkpoint uids.
    node.kubelet(listed("a", A))
    node.checkpoint(kept(uid_of("a"), A))
    node.looks(ran_by(ids("a")))
    assert node.containers() == [FULL]
    assert (node.sole().held_ns, node.sole().busy_ns) == (10 * S, S)


def test_by_those_who_hold_something_where_the_pods_state_lags_behind() -> None:
    node = Watched()
    node.pods(pod("a", container(), container("side")))
    node.runtime(ran("a", A))
    node.looks(ran_by(ids("a")))
    assert node.containers() == [FULL]


def test_by_those_who_hold_something_it_is_not_another_container() -> None:
    node = Watched()
    node.runtime(ran("a", A, container_id="1"))
    node.looks(ran_by(ids("a", "2")))
    assert node.containers() == [("ml", "a", "", uid_of("a")), FULL]


def test_a_container_that_holds_one_device_may_use_another() -> None:
    node = Watched()
    node.runtime(ran("a", A, container_id="1"))
    node.looks(ran_by(ids("a")), device=B)
    assert node.containers(B) == [FULL]
    assert (node.sole(B).held_ns, node.sole(B).busy_ns) == (0, S)


@pytest.mark.parametrize(
    ("owner", "busy"),
    [
        (PartialRef(), None),
        (None, S),
        # An id that nobody has told of says no more than none.
        (ids("", "99"), S),
    ],
)
def test_outside_all_pods_and_unknown(owner: PartialRef | None, busy: int | None) -> None:
    node = Watched()
    node.runtime(ran("a", A))
    node.looks(ran_by(owner))
    assert node.sole().busy_ns == (busy or 0)
    assert node.account().busy_unattributed_ns == (0 if busy else S)


@pytest.mark.parametrize("by", ["runtime", "pods"])
def test_names_are_known_when_the_last_look_comes_after_the_end(by: str) -> None:
    node = Watched()
    node.look(0, use(A, 0, None))
    if by == "runtime":
        node.tell("runtime", ContainersReplaced((), 300 * NS))
        node.tell("runtime", ContainerStarted(running("a")))
        node.tell("runtime", ContainerStopped("1"))
    else:
        node.pods()
        node.upsert(REPORTED)
        node.delete("a")
    node.look(5, use(A, 5, 0, ran_by(ids("a"), memory=0, kind=""), busy=S))
    assert node.containers() == [FULL]
    assert (node.sole().busy_ns, node.sole().ended) == (S, at(5))


@pytest.mark.parametrize("complete", [True, False])
def test_t10_the_last_busy_time_is_the_pod_s_where_the_list_drops_it_first(
    *, complete: bool
) -> None:
    """No source of pods: who held the device is all that names its processes."""
    node = Watched()
    node.kubelet(listed("a", A), complete=complete)
    node.checkpoint(kept(uid_of("a"), A))
    node.look(0, use(A, 0, None, ran_by(ids("a"), busy=None)))
    node.seconds = 4
    node.kubelet(complete=complete)
    node.checkpoint()
    node.look(5, use(A, 5, 0, ran_by(ids("a"), memory=0, kind=""), busy=S))
    assert node.containers() == [FULL]
    assert (node.sole().busy_ns, node.sole().held_ns, node.sole().ended) == (S, 4 * S, at(4))


def test_a_second_uid_under_the_same_name_starts_at_0() -> None:
    node = Watched()
    node.pods(pod("a", container(container_id="1"), uid="uid-1"))
    node.runtime(ran("a", A))
    node.look(0, use(A, 0, None))
    node.look(5, use(A, 5, 0, ran_by(PartialRef(uid="uid-1", container_id="1")), busy=S))
    node.tell("pods", PodDeleted("uid-1"))
    node.upsert(pod("a", container(container_id="2"), uid="uid-2"))
    node.look(10, use(A, 10, 5, ran_by(PartialRef(uid="uid-2", container_id="2"), busy=7), busy=7))
    found = {one.subject.uid: one.busy_ns for one in node.account().containers}
    assert found["uid-1"] == S
    assert found["uid-2"] == 7


def test_what_is_known_of_a_pod_is_its_newest() -> None:
    node = Watched()
    node.pods(REPORTED)
    node.looks(ran_by(ids("a")))
    newer = pod("a", container(container_id="1"), started=3)
    node.upsert(newer)
    node.look(20, use(A, 20, 10, ran_by(ids("a"))))
    assert node.sole().pod is newer.info


def test_crowds_of_pods_take_little_memory() -> None:
    node = Watched()
    node.pods()
    for number in range(5000):
        node.tell("pods", PodUpserted(pod(f"p-{number}", container(container_id=str(number)))))
        node.delete(f"p-{number}")
    owners = node.join._process_owners
    assert max(len(owners._past_pods), len(owners._past_containers)) == 2048
    assert owners.find(ids("p-4999", "4999")).container == (
        "ml",
        "p-4999",
        "main",
        uid_of("p-4999"),
    )


def order(processes: Iterable[ProcessUse]) -> list[ContainerUsage]:
    node = Watched()
    node.tell("runtime", ContainersReplaced((running("a"), running("b", "2")), 300 * NS))
    node.looks(*processes)
    return list(node.account().containers)


def test_the_order_of_processes_does_not_matter() -> None:
    processes = [ran_by(ids("a")), ran_by(ids("b", "2"), busy=3), ran_by(None), ran_by(ids("c"))]
    assert order(processes) == order(reversed(processes))
