"""When free GPUs are known: a source lists the holders, and all their devices are resolved."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import (
    NS,
    Claim,
    ClaimsReplaced,
    ContainersReplaced,
    Evidence,
    PartialRef,
    RunningContainer,
    SourceAdded,
    SourceLost,
    SourceRemoved,
)
from tests.pipeline.join.cluster import (
    GOOD_FOR,
    GPUS,
    A,
    B,
    Cluster,
    annotation_claim,
    checkpoint_claim,
    kubelet_claim,
    make_claim,
    plugin_answer,
    pod,
    pod_list,
    podlist_claim,
    runtime_claim,
    uid_of,
)
from tests.support.topology import topology_read

OTHER_NODE_GPU = "GPU-0000ffff-5eed-4a5e-9c0d-000000000000"


def node_with_topology(*, devices: int = 4) -> Cluster:
    node = Cluster(GPUS[:devices])
    node.emit("gpus", topology_read(*GPUS[:devices]))
    return node


def free(node: Cluster) -> int | None:
    found = node.snapshot().availability
    return None if found is None else found.free


def containers(*running: str) -> ContainersReplaced:
    """Return the runtime's list of containers. Those named hold the first GPU."""
    found = tuple(
        RunningContainer(
            PartialRef("ml", name, "main", uid_of(name), f"c-{name}"),
            claims=(
                runtime_claim(name, A, evidence=Evidence.RUNTIME_CDI, container_id=f"c-{name}"),
            ),
        )
        for name in running
    )
    return ContainersReplaced(found, GOOD_FOR * NS)


# -- which sources are needed


@pytest.mark.parametrize("source", ["kubelet", "checkpoint", "podlist", "runtime"])
def test_one_source_that_lists_the_holders_is_enough(source: str) -> None:
    node = node_with_topology()
    assert free(node) is None
    event = containers() if source == "runtime" else ClaimsReplaced((), GOOD_FOR * NS)
    assert node.emit(source, event)
    assert free(node) == 0b1111


def test_pods_without_claims_of_the_kubelet_do_not_show_what_is_free() -> None:
    """A pod with GPUs of the kubelet does not contain which ones they are."""
    node = node_with_topology()
    node.pods(pod("a"), pod("b", claims=[annotation_claim("b", B)]))
    assert free(node) is None
    node.kubelet(kubelet_claim("a", A), kubelet_claim("b", B))
    assert free(node) == 0b1100


@pytest.mark.parametrize("down", [True, False])
def test_free_gpus_are_unknown_when_the_kubelet_s_claims_have_expired(down: bool) -> None:
    node = node_with_topology()
    node.pods(pod("a"))
    node.tick(5)
    node.kubelet(kubelet_claim("a", A))
    if down:
        node.emit("kubelet", SourceLost("connection refused"))
    node.tick(GOOD_FOR)
    assert free(node) == 0b1110
    node.pods(pod("a"))
    node.tick(GOOD_FOR + 6)
    assert free(node) is None
    node.kubelet(kubelet_claim("a", A))
    assert free(node) == 0b1110


def test_free_gpus_are_unknown_when_the_runtime_s_list_has_expired() -> None:
    node = node_with_topology()
    node.emit("runtime", containers("a"))
    assert free(node) == 0b1110
    node.tick(GOOD_FOR + 1)
    assert free(node) is None


def test_free_gpus_stay_known_while_another_source_lists_the_holders() -> None:
    node = node_with_topology()
    node.kubelet(kubelet_claim("a", A))
    node.tick(GOOD_FOR - 10)
    node.checkpoint(checkpoint_claim(uid_of("a"), A))
    node.tick(GOOD_FOR + 1)
    assert free(node) == 0b1110


def test_free_gpus_are_unknown_until_a_replaced_source_reports() -> None:
    node = node_with_topology()
    node.pods(pod("a"))
    node.kubelet()
    assert free(node) == 0b1111
    node.emit("kubelet", SourceRemoved())
    node.say(SourceAdded(2), "kubelet", "checkpoint")
    assert free(node) is None
    node.say(ClaimsReplaced((kubelet_claim("a", A),), GOOD_FOR * NS), "kubelet", "checkpoint")
    assert free(node) == 0b1110


def test_a_change_between_known_and_unknown_changes_the_snapshot() -> None:
    node = node_with_topology()
    node.emit("kubelet", SourceLost("not yet"))
    node.tick(1)
    assert node.emit("kubelet", ClaimsReplaced((), NS))
    node.seconds = 3
    assert node.emit("pods", SourceAdded(1))
    assert free(node) is None
    # The kubelet is up already: its first report changes nothing else.
    assert node.emit("kubelet", ClaimsReplaced((), NS))
    assert free(node) == 0b1111


# -- unresolved ids

UNRESOLVED: list[tuple[str, Claim]] = [
    ("kubelet", kubelet_claim("a", "no-such-id")),
    ("kubelet", kubelet_claim("a", "nvidia9")),
    ("kubelet", kubelet_claim("a", f"{A}-3")),
    ("kubelet", kubelet_claim("a", f"{OTHER_NODE_GPU}-3")),
    ("kubelet", kubelet_claim("a", f"{A}-_-3", resource="aliyun.com/gpu-mem")),
    (
        "kubelet",
        make_claim(Evidence.KUBELET_IDS, PartialRef("ml", "a", "main"), ["d/p/gpu-0"], "dra"),
    ),
    ("checkpoint", plugin_answer(uid_of("a"), ["x"], "9")),
    ("podlist", podlist_claim("a", "no-such-id")),
    ("runtime", runtime_claim("a", "nvidia.com/gpu=9", evidence=Evidence.RUNTIME_CDI)),
]


@pytest.mark.parametrize(
    ("source", "unresolved"), UNRESOLVED, ids=[str(n) for n in range(len(UNRESOLVED))]
)
def test_free_gpus_are_unknown_while_a_pod_holds_an_unresolved_id(
    source: str, unresolved: Claim
) -> None:
    node = node_with_topology()
    node.pods(pod("a"), pod("b"))
    node.tick(5)
    node.kubelet(kubelet_claim("b", B))
    assert free(node) == 0b1101
    node.emit(source, ClaimsReplaced((unresolved, kubelet_claim("b", B)), GOOD_FOR * NS))
    assert node.held() == {B: ["b/main"]}
    assert free(node) is None
    # Until the pod has ended. Only the runtime reports the end of its containers.
    ended = pod_list(pod("a", ended=True), pod("b"))
    over = ClaimsReplaced((), GOOD_FOR * NS) if source == "runtime" else ended
    assert node.emit("runtime" if source == "runtime" else "pods", over)
    assert free(node) == 0b1101


HARMLESS: list[tuple[str, Claim]] = [
    # The id of a device of another node.
    ("kubelet", kubelet_claim("a", OTHER_NODE_GPU)),
    ("kubelet", kubelet_claim("a", f"{OTHER_NODE_GPU}::4")),
    ("kubelet", kubelet_claim("a", "MIG-0000ffff-5eed-4a5e-9c0d-000000000000")),
    ("kubelet", kubelet_claim("a", f"MIG-{OTHER_NODE_GPU}/1/0")),
    ("podlist", podlist_claim("a", OTHER_NODE_GPU[4:])),
    # Network cards, and GPUs that are passed to virtual machines.
    ("kubelet", kubelet_claim("a", "0000:3b:00.1", resource="nvidia.com/hostdev")),
    ("runtime", runtime_claim("a", "nvidia.com/imex-channel=0", evidence=Evidence.RUNTIME_CDI)),
    ("runtime", runtime_claim("a", "management.nvidia.com/gpu=all", evidence=Evidence.RUNTIME_CDI)),
    # Every GPU has another number: the annotation means none of them.
    ("kubelet", make_claim(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["9"], "index")),
    ("kubelet", make_claim(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["9"], "minor")),
    (
        "kubelet",
        make_claim(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["GPU-x"], "uuid"),
    ),
    # Any image can set this variable.
    ("runtime", runtime_claim("a", "7", evidence=Evidence.RUNTIME_ENV)),
    ("runtime", runtime_claim("a", "all", evidence=Evidence.RUNTIME_ENV)),
]


@pytest.mark.parametrize(("source", "claim"), HARMLESS, ids=[str(n) for n in range(len(HARMLESS))])
def test_ids_that_cannot_mean_a_gpu_of_this_node_are_ignored(source: str, claim: Claim) -> None:
    node = node_with_topology()
    node.kubelet()
    node.emit(source, ClaimsReplaced((claim,), GOOD_FOR * NS))
    assert free(node) == 0b1111


@pytest.mark.parametrize("known", ["kubelet", "pods", "checkpoint"])
def test_an_unresolved_id_is_harmless_if_another_claim_names_the_gpu(known: str) -> None:
    """HAMi's ids only count. Its annotation names the GPU that the container has."""
    node = node_with_topology()
    node.pods(pod("a"))
    node.tick(5)
    unresolved = kubelet_claim("a", "vgpu-unit-17", resource="example.com/gpu-units")
    node.kubelet(unresolved)
    assert free(node) is None
    if known == "kubelet":
        node.kubelet(unresolved, kubelet_claim("a", A))
    elif known == "pods":
        node.pods(pod("a", claims=[annotation_claim("a", A)]))
    else:
        node.checkpoint(plugin_answer(uid_of("a"), ["vgpu-unit-17"], A))
    assert node.held().keys() == {A}
    assert free(node) == 0b1110


def test_a_placeholder_is_harmless_if_an_annotation_names_the_gpu() -> None:
    node = node_with_topology()
    node.pods(pod("a"))
    node.tick(5)
    node.kubelet(kubelet_claim("a", f"{A}-3"))
    assert free(node) is None
    node.pods(pod("a", claims=[annotation_claim("a", B, share=0.5)]))
    assert free(node) == 0b1101


def test_a_number_is_unresolved_if_a_gpu_has_no_number() -> None:
    """If dcgm-exporter's page is the only source of GPUs, they have no minor numbers."""
    node = node_with_topology()
    node.kubelet(make_claim(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["9"], "minor"))
    assert free(node) == 0b1111
    node.has(*GPUS[:3], replace(GPUS[3], minor=None))
    assert free(node) is None


def test_a_claim_of_another_container_does_not_resolve_an_id() -> None:
    node = node_with_topology()
    node.kubelet(kubelet_claim("a", A), kubelet_claim("a", "no-such-id", container="other"))
    assert free(node) is None
    node.kubelet(
        kubelet_claim("a", A),
        kubelet_claim("a", "no-such-id", container="other"),
        kubelet_claim("b", B),
    )
    assert free(node) is None


def test_names_and_uids_are_matched_for_unresolved_ids_too() -> None:
    """The list has names and an unresolved id, the checkpoint UIDs and the plugin's answer."""
    node = node_with_topology()
    node.kubelet(kubelet_claim("a", "no-such-id"))
    assert free(node) is None
    node.checkpoint(plugin_answer(uid_of("a"), ["no-such-id"], A))
    assert free(node) == 0b1110


def test_an_unresolved_id_of_a_pod_that_is_gone_is_ignored() -> None:
    node = node_with_topology()
    node.checkpoint(checkpoint_claim("uid-gone", "no-such-id"))
    assert free(node) is None
    node.kubelet(kubelet_claim("a", A), complete=True)
    assert free(node) == 0b1110


def test_a_placeholder_on_a_node_with_one_gpu_is_resolved() -> None:
    node = node_with_topology(devices=1)
    node.kubelet(kubelet_claim("a", f"{A}-3"))
    assert free(node) == 0


# -- the source of the topology


def test_no_gpu_is_free_while_the_driver_is_gone() -> None:
    node = node_with_topology()
    node.kubelet(kubelet_claim("a", A))
    assert free(node) == 0b1110
    assert node.emit("gpus", SourceLost("the driver is gone"))
    after = node.snapshot()
    assert (after.availability, after.topology_source, after.topology_is_current) == (
        None,
        "gpus",
        False,
    )
    assert after.topology is not None
    node.has(*GPUS)
    assert free(node) == 0b1110
    assert node.snapshot().topology_is_current


# -- random events

EVENTS = st.sampled_from(
    [
        ("kubelet", ClaimsReplaced((), GOOD_FOR * NS)),
        ("kubelet", ClaimsReplaced((kubelet_claim("a", A),), GOOD_FOR * NS)),
        ("kubelet", ClaimsReplaced((kubelet_claim("a", "unresolved"),), GOOD_FOR * NS)),
        ("checkpoint", ClaimsReplaced((checkpoint_claim(uid_of("a"), B),), 20 * NS)),
        ("podlist", ClaimsReplaced((podlist_claim("b", "unresolved"),), 20 * NS)),
        ("runtime", containers("a")),
        ("pods", pod_list(pod("a"), pod("b"))),
        ("pods", pod_list(pod("a", ended=True))),
        ("gpus", SourceLost("gone")),
        ("gpus", topology_read(*GPUS)),
        ("kubelet", SourceLost("gone")),
        ("kubelet", SourceRemoved()),
        ("checkpoint", SourceRemoved()),
        ("podlist", SourceRemoved()),
        ("runtime", SourceRemoved()),
    ]
)


@given(st.lists(st.tuples(st.floats(0, 200), EVENTS), max_size=15))
def test_gpus_are_free_only_while_a_list_of_holders_is_valid(
    course: list[tuple[float, tuple[str, ClaimsReplaced]]],
) -> None:
    node = node_with_topology()
    now, valid_until, up = 0.0, dict[str, float](), True
    for rest, (source, event) in course:
        now += rest
        node.tick(now)
        node.emit(source, event)
        if isinstance(event, ClaimsReplaced | ContainersReplaced):
            valid_until[source] = now + event.good_for_ns / NS
        elif isinstance(event, SourceRemoved):
            valid_until.pop(source, None)
        elif source == "gpus":
            up = not isinstance(event, SourceLost)
        known = up and any(until >= now for until in valid_until.values())
        assert known or free(node) is None
