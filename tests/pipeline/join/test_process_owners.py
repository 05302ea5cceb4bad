"""The container of a process: by its cgroup, by reported containers and pods, and by claims."""

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
from tests.pipeline.join.cluster import (
    A,
    B,
    checkpoint_claim,
    container,
    kubelet_claim,
    pod,
    runtime_claim,
    uid_of,
)
from tests.pipeline.join.sampled_cluster import SampledCluster, cgroup_owner, process_of, running
from tests.pipeline.usage.samples import S, use
from tests.support.nodes import at

FULL = ("ml", "a", "main", uid_of("a"))
STATIC = ("ml", "a", "main", "uid-hash")
POD_A = pod("a", container(container_id="1"))


@pytest.mark.parametrize(
    ("pods", "running_containers", "owner", "expected"),
    [
        # The runtime knows its containers.
        ([], [running("a")], cgroup_owner("a"), FULL),
        ([], [running("a")], cgroup_owner("", "1"), FULL),
        (
            [],
            [running("a"), running("a", "2", "side")],
            cgroup_owner("a", "2"),
            ("ml", "a", "side", "uid-a"),
        ),
        # The API server knows the pods.
        ([POD_A], [], cgroup_owner("a"), FULL),
        ([POD_A], [], cgroup_owner("", "1"), FULL),
        (
            [pod("a", container(), container("side"))],
            [],
            cgroup_owner("a"),
            ("ml", "a", "", "uid-a"),
        ),
        ([pod("a", container("init", "init"), container())], [], cgroup_owner("a"), FULL),
        # A static pod has the UID of the kubelet, not that of its mirror pod.
        ([pod("a", static_uid="uid-hash")], [], cgroup_owner("hash"), STATIC),
        ([pod("a", static_uid="uid-hash")], [running("hash")], cgroup_owner("hash"), STATIC),
        # Pods and runtime, of which only the runtime knows the second container.
        (
            [pod("a", container(container_id="7"), container("side"))],
            [running("a", "2", "side")],
            cgroup_owner("a", "2"),
            ("ml", "a", "side", "uid-a"),
        ),
        # Unknown pod: the UID stays, and the names are empty.
        ([pod("b")], [running("c", "9")], cgroup_owner("a"), ("", "", "", "uid-a")),
    ],
)
def test_a_process_is_attributed_by_its_cgroup(
    *,
    pods: list[Pod],
    running_containers: list[RunningContainer],
    owner: PartialRef,
    expected: tuple[str, ...],
) -> None:
    node = SampledCluster()
    if pods:
        node.pods(*pods)
    node.emit("runtime", ContainersReplaced(tuple(running_containers), 300 * NS))
    node.take_samples(process_of(owner))
    assert node.containers() == [expected]
    assert node.only_container().busy_ns == S
    assert node.only_container().memory_bytes == 5
    assert (node.only_container().pod is not None) == (expected[1] == "a" and bool(pods))


def test_a_process_is_attributed_by_claims() -> None:
    node = SampledCluster()
    # The kubelet's list has names, and its checkpoint has UIDs.
    node.kubelet(kubelet_claim("a", A))
    node.checkpoint(checkpoint_claim(uid_of("a"), A))
    node.take_samples(process_of(cgroup_owner("a")))
    assert node.containers() == [FULL]
    assert (node.only_container().held_ns, node.only_container().busy_ns) == (10 * S, S)


def test_claims_name_the_container_while_the_pod_s_status_lags_behind() -> None:
    node = SampledCluster()
    node.pods(pod("a", container(), container("side")))
    node.runtime(runtime_claim("a", A))
    node.take_samples(process_of(cgroup_owner("a")))
    assert node.containers() == [FULL]


def test_a_claim_of_one_container_does_not_name_another() -> None:
    node = SampledCluster()
    node.runtime(runtime_claim("a", A, container_id="1"))
    node.take_samples(process_of(cgroup_owner("a", "2")))
    assert node.containers() == [("ml", "a", "", uid_of("a")), FULL]


def test_a_container_that_holds_one_device_may_use_another() -> None:
    node = SampledCluster()
    node.runtime(runtime_claim("a", A, container_id="1"))
    node.take_samples(process_of(cgroup_owner("a")), device=B)
    assert node.containers(B) == [FULL]
    assert (node.only_container(B).held_ns, node.only_container(B).busy_ns) == (0, S)


@pytest.mark.parametrize(
    ("owner", "busy"),
    [
        (PartialRef(), None),
        (None, S),
        # An unknown container id is the same as none.
        (cgroup_owner("", "99"), S),
    ],
)
def test_processes_outside_pods_are_unattributed_and_unknown_ones_the_holder_s(
    owner: PartialRef | None, busy: int | None
) -> None:
    node = SampledCluster()
    node.runtime(runtime_claim("a", A))
    node.take_samples(process_of(owner))
    assert node.only_container().busy_ns == (busy or 0)
    assert node.account().busy_unattributed_ns == (0 if busy else S)


@pytest.mark.parametrize("by", ["runtime", "pods"])
def test_the_last_sample_is_attributed_after_the_container_has_ended(by: str) -> None:
    node = SampledCluster()
    node.sample(0, use(A, 0, None))
    if by == "runtime":
        node.emit("runtime", ContainersReplaced((), 300 * NS))
        node.emit("runtime", ContainerStarted(running("a")))
        node.emit("runtime", ContainerStopped("1"))
    else:
        node.pods()
        node.upsert(POD_A)
        node.delete("a")
    node.sample(5, use(A, 5, 0, process_of(cgroup_owner("a"), memory=0, kind=""), busy=S))
    assert node.containers() == [FULL]
    assert (node.only_container().busy_ns, node.only_container().ended) == (S, at(5))


@pytest.mark.parametrize("complete", [True, False])
def test_t10_the_last_busy_time_belongs_to_the_pod_that_left_the_list_first(
    *, complete: bool
) -> None:
    """Without a source of pods, only the last holder of the device names its processes."""
    node = SampledCluster()
    node.kubelet(kubelet_claim("a", A), complete=complete)
    node.checkpoint(checkpoint_claim(uid_of("a"), A))
    node.sample(0, use(A, 0, None, process_of(cgroup_owner("a"), busy=None)))
    node.seconds = 4
    node.kubelet(complete=complete)
    node.checkpoint()
    node.sample(5, use(A, 5, 0, process_of(cgroup_owner("a"), memory=0, kind=""), busy=S))
    assert node.containers() == [FULL]
    assert (
        node.only_container().busy_ns,
        node.only_container().held_ns,
        node.only_container().ended,
    ) == (S, 4 * S, at(4))


def test_a_new_pod_that_reuses_a_name_is_counted_separately() -> None:
    node = SampledCluster()
    node.pods(pod("a", container(container_id="1"), uid="uid-1"))
    node.runtime(runtime_claim("a", A))
    node.sample(0, use(A, 0, None))
    node.sample(5, use(A, 5, 0, process_of(PartialRef(uid="uid-1", container_id="1")), busy=S))
    node.emit("pods", PodDeleted("uid-1"))
    node.upsert(pod("a", container(container_id="2"), uid="uid-2"))
    node.sample(
        10, use(A, 10, 5, process_of(PartialRef(uid="uid-2", container_id="2"), busy=7), busy=7)
    )
    found = {one.subject.uid: one.busy_ns for one in node.account().containers}
    assert found["uid-1"] == S
    assert found["uid-2"] == 7


def test_an_account_has_the_newest_description_of_its_pod() -> None:
    node = SampledCluster()
    node.pods(POD_A)
    node.take_samples(process_of(cgroup_owner("a")))
    newer = pod("a", container(container_id="1"), started=3)
    node.upsert(newer)
    node.sample(20, use(A, 20, 10, process_of(cgroup_owner("a"))))
    assert node.only_container().pod is newer.info


@pytest.mark.slow
def test_memory_for_past_pods_is_bounded() -> None:
    node = SampledCluster()
    node.pods()
    for number in range(5000):
        node.emit("pods", PodUpserted(pod(f"p-{number}", container(container_id=str(number)))))
        node.delete(f"p-{number}")
    owners = node.join._process_owners
    assert max(len(owners._past_pods), len(owners._past_containers)) == 2048
    assert owners.find(cgroup_owner("p-4999", "4999")).container == (
        "ml",
        "p-4999",
        "main",
        uid_of("p-4999"),
    )


def order(processes: Iterable[ProcessUse]) -> list[ContainerUsage]:
    node = SampledCluster()
    node.emit("runtime", ContainersReplaced((running("a"), running("b", "2")), 300 * NS))
    node.take_samples(*processes)
    return list(node.account().containers)


def test_the_order_of_processes_does_not_matter() -> None:
    processes = [
        process_of(cgroup_owner("a")),
        process_of(cgroup_owner("b", "2"), busy=3),
        process_of(None),
        process_of(cgroup_owner("c")),
    ]
    assert order(processes) == order(reversed(processes))
