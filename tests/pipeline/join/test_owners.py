"""Jobs, and containers without pods: what they hold, use and are affected by, next to pods."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.join.source_pods import SourcePods
from pipeline.model import (
    NS,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    Device,
    Event,
    Evidence,
    PartialRef,
    RawDeviceId,
    RunningContainer,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    TotalsRestored,
    XidReport,
    XidsReported,
    container_uid,
    job_container_id,
    only_holder,
)
from tests.pipeline.join.cluster import GPUS, A, B, kubelet_claim, pod
from tests.pipeline.join.sampled_cluster import SampledCluster, process_of
from tests.pipeline.join.test_free_gpus_known import free, node_with_topology
from tests.pipeline.usage.samples import S, use
from tests.support.nodes import at, mig
from tests.support.owners import container_id_of, job, podless_container

GOOD_NS = 300 * NS


def node_with(*running: RunningContainer) -> SampledCluster:
    node = SampledCluster()
    emit(node, ContainersReplaced(running, GOOD_NS))
    return node


def emit(node: SampledCluster, event: Event, source: str = "docker") -> bool:
    return node.emit(source, event)


def held(node: SampledCluster, device: str = A) -> list[str]:
    return [one.subject.pod for one in node.snapshot().layout.attributions[device].holders]


def owner_of_process(one: RunningContainer) -> PartialRef:
    """Return what the cgroup of a process shows of a container or a job."""
    subject = one.subject
    uid = subject.uid if subject.kind == "container" else ""
    return PartialRef(uid=uid, container_id=subject.container_id)


OWNERS = {
    "container": podless_container("trainer", A, image="cuda:13", compose_project="lab"),
    "podman container": podless_container("trainer", A, runtime="podman"),
    "job": job("1234", A, account="physics", partition="gpu", job_name="train"),
}
each_owner = pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS.keys())


@each_owner
def test_it_holds_the_devices_that_it_was_given(owner: RunningContainer) -> None:
    node = node_with(owner)
    [holder] = node.snapshot().layout.attributions[A].holders
    assert holder.subject == owner.subject
    assert holder.pod == owner.info
    assert (holder.since, holder.since_observed) == (owner.started, False)
    assert node.snapshot().layout.attributions[B].holders == ()


@each_owner
def test_its_processes_count_for_it(owner: RunningContainer) -> None:
    node = node_with(owner)
    node.take_samples(process_of(owner_of_process(owner)))
    only = node.only_container()
    assert (only.subject.uid, only.pod) == (owner.subject.uid, owner.info)
    assert (only.busy_ns, only.held_ns, only.memory_bytes) == (S, 10 * S, 5)
    assert only.holding is not None
    assert only.holding.evidence == owner.claims[0].origin.evidence


@each_owner
def test_a_process_counts_for_it_on_a_device_that_it_does_not_hold(owner: RunningContainer) -> None:
    node = node_with(owner)
    node.take_samples(process_of(owner_of_process(owner)), device=B)
    assert node.only_container(B).subject.uid == owner.subject.uid
    assert node.only_container(B).held_ns == 0


@each_owner
def test_its_last_sample_counts_for_it_after_its_end(owner: RunningContainer) -> None:
    node = node_with(owner)
    node.sample(0, use(A, 0, None))
    node.seconds = 4
    emit(node, ContainerStopped(owner.subject.container_id))
    node.sample(10, use(A, 10, 0, process_of(owner_of_process(owner)), used=100, busy=S))
    only = node.only_container()
    assert (only.busy_ns, only.held_ns, only.pod) == (S, 4 * S, owner.info)


@each_owner
def test_an_xid_error_names_it_as_the_cause(owner: RunningContainer) -> None:
    node = node_with(owner)
    node.sample(0, use(A, 0, None))
    report = XidReport(A, "", 31, at(1), 77, "python3", owner_of_process(owner))
    node.seconds = 1
    node.say(XidsReported((report,)), "kernel", "kernel")
    [error] = node.snapshot().xids
    [victim] = error.victims
    assert (victim.subject.uid, victim.pod) == (owner.subject.uid, owner.info)
    assert (victim.holds, victim.caused) == (True, True)


@each_owner
def test_its_account_continues_after_a_restart_of_podgpu(owner: RunningContainer) -> None:
    before = node_with(owner)
    before.take_samples(process_of(owner_of_process(owner)))
    node = SampledCluster()
    node.say(TotalsRestored((before.account(),)), "ledger", "ledger")
    node.seconds = 20
    emit(node, ContainersReplaced((owner,), GOOD_NS))
    node.sample(21, use(A, 21, None))
    node.sample(25, use(A, 25, 21, process_of(owner_of_process(owner)), used=100, busy=S))
    only = node.only_container()
    assert (only.subject.uid, only.busy_ns, only.held_ns) == (owner.subject.uid, 2 * S, 14 * S)


def given_all(*devices: Device) -> SampledCluster:
    owner = podless_container("a", A)
    claim = replace(owner.claims[0], devices=(RawDeviceId("all", "all"),))
    node = SampledCluster(devices)
    emit(node, ContainersReplaced((replace(owner, claims=(claim,)),), GOOD_NS))
    return node


def test_a_container_with_all_devices_holds_each_of_them() -> None:
    node = given_all(*GPUS[:2])
    assert (held(node, A), held(node, B)) == (["a"], ["a"])


def test_of_a_gpu_with_mig_instances_it_holds_the_instances() -> None:
    instances = [mig(GPUS[0], 1), mig(GPUS[0], 2)]
    node = given_all(*GPUS[:2], *instances)
    assert [held(node, one.uuid) for one in instances] == [["a"], ["a"]]
    assert (held(node, A), held(node, B)) == ([], ["a"])
    assert node.snapshot().sources["docker"].unresolved == ()


# -- next to each other


def test_several_containers_may_hold_one_device() -> None:
    node = node_with(podless_container("a", A), podless_container("b", A, B))
    assert (held(node), held(node, B)) == (["a", "b"], ["b"])
    assert node.snapshot().layout.attributions[A].conflicts == 0
    assert only_holder(node.snapshot().layout.attributions[A].holders) is None


def test_containers_of_two_runtimes_with_one_name_are_two_owners() -> None:
    node = SampledCluster()
    emit(node, ContainersReplaced((podless_container("web", A),), GOOD_NS))
    podman = podless_container("web", A, runtime="podman")
    emit(node, ContainersReplaced((podman,), GOOD_NS), "podman")
    holders = node.snapshot().layout.attributions[A].holders
    assert [one.subject.uid.partition("://")[0] for one in holders] == ["docker", "podman"]
    assert only_holder(holders) is None


@pytest.mark.parametrize("owner", [podless_container("a", A), job("7", A)])
def test_the_kubelet_s_allocation_of_a_device_is_final(owner: RunningContainer) -> None:
    node = node_with(owner)
    node.pods(pod("p"))
    node.kubelet(kubelet_claim("p", A))
    assert held(node) == ["p"]
    name = owner.subject.pod
    expected = f"job {name}" if owner.subject.kind == "job" else f"container {name}"
    assert node.snapshot().layout.attributions[A].conflicting_pods == (expected,)


def test_a_job_with_a_whole_device_overrules_containers() -> None:
    node = node_with(podless_container("a", A))
    emit(node, ContainersReplaced((job("7", A),), GOOD_NS), "slurm")
    assert held(node) == ["7"]
    assert node.snapshot().layout.attributions[A].conflicting_pods == ("container a",)


def test_jobs_share_a_device() -> None:
    node = node_with(job("7", A, share=0.25), job("8", A, share=0.5))
    attribution = node.snapshot().layout.attributions[A]
    assert [one.share for one in attribution.holders] == [0.25, 0.5]
    assert attribution.conflicts == 0


def test_of_two_jobs_with_a_whole_device_the_later_one_holds_it() -> None:
    node = node_with(job("7", A, started=at(1)), job("8", A, started=at(5)))
    assert held(node) == ["8"]
    assert node.snapshot().layout.attributions[A].conflicting_pods == ("job 7",)


def test_a_job_that_is_requeued_is_another_owner() -> None:
    first, second = job("7", A), job("7", A, started=at(100))
    assert first.subject.container_id == second.subject.container_id
    node = node_with(first)
    node.sample(0, use(A, 0, None))
    node.sample(5, use(A, 5, 0, process_of(owner_of_process(first)), used=5, busy=S))
    node.seconds = 5
    emit(node, ContainersReplaced((second,), GOOD_NS))
    node.sample(9, use(A, 9, 5, process_of(owner_of_process(second)), used=5, busy=S))
    accounts = {one.subject.uid: one.busy_ns for one in node.account().containers}
    assert accounts == {first.subject.uid: S, second.subject.uid: S}


def test_a_container_that_is_restarted_continues_its_account() -> None:
    owner = podless_container("a", A)
    node = node_with(owner)
    node.sample(0, use(A, 0, None))
    node.seconds = 2
    emit(node, ContainerStopped(owner.subject.container_id))
    node.seconds = 6
    emit(node, ContainerStarted(owner))
    node.sample(10, use(A, 10, 0))
    assert node.only_container().held_ns == 6 * S


# -- processes that belong to no known owner


@pytest.mark.parametrize(
    "owner",
    [
        PartialRef(uid=container_uid("docker", "c" * 64), container_id="c" * 64),
        PartialRef(container_id=job_container_id("9")),
    ],
)
def test_a_process_of_an_owner_that_no_source_reports_counts_for_no_holder(
    owner: PartialRef,
) -> None:
    node = SampledCluster()
    node.pods(pod("p"))
    node.kubelet(kubelet_claim("p", A))
    node.take_samples(process_of(owner))
    assert node.only_container().busy_ns == 0
    assert node.account().busy_unattributed_ns == S


# -- which devices are free


def containers(*devices: str) -> ContainersReplaced:
    return ContainersReplaced((podless_container("a", *devices),) if devices else (), GOOD_NS)


OWNER_SOURCE = SourceAdded(7, ("owners",))
KUBELET = SourceAdded(8, ("claims",))


def test_a_list_of_owners_is_enough_on_a_node_without_a_kubelet() -> None:
    node = node_with_topology()
    node.emit("docker", OWNER_SOURCE)
    assert free(node) is None
    node.emit("docker", containers(A))
    assert free(node) == 0b1110
    node.emit("docker", ContainerStopped(container_id_of("a")))
    assert free(node) == 0b1111


@pytest.mark.parametrize(
    "reports",
    [
        lambda node: node.emit("docker", containers()),
        lambda node: node.kubelet(),
    ],
    ids=["only the containers", "only the kubelet"],
)
def test_on_a_node_with_a_kubelet_both_must_have_reported(
    reports: Callable[[SampledCluster], object],
) -> None:
    node = node_with_topology()
    node.emit("docker", OWNER_SOURCE)
    node.emit("kubelet", KUBELET)
    reports(node)  # type: ignore[arg-type]
    assert free(node) is None
    node.emit("docker", containers(A))
    node.kubelet(kubelet_claim("p", B))
    assert free(node) == 0b1100


def test_free_devices_are_unknown_when_the_list_of_owners_has_expired() -> None:
    node = node_with_topology()
    node.emit("docker", OWNER_SOURCE)
    node.emit("docker", containers(A))
    node.kubelet()
    node.emit("docker", SourceLost("connection refused"))
    assert free(node) == 0b1110
    node.tick(301)
    node.kubelet()
    assert free(node) is None
    node.emit("docker", SourceRemoved())
    assert free(node) == 0b1111


# -- hostile names


def test_a_pod_cannot_take_the_uid_of_a_container_or_a_job() -> None:
    """A user may write any static uid into an annotation of a pod."""
    for owner in OWNERS.values():
        pods = SourcePods()
        pods.mark_listed(at(0))
        pods.upsert(pod("evil", static_uid=owner.subject.uid), at(0))
        assert pods.find(owner.subject.uid) is None
        assert pods.find("uid-evil") is not None


def test_evidence_of_owners_is_not_that_of_pods() -> None:
    kinds = {one.claims[0].origin.evidence for one in OWNERS.values()}
    assert kinds == {Evidence.DEVICE_REQUEST, Evidence.JOB_ALLOCATION}
