"""When it is known what is free: while somebody lists the holders, and no holder is a riddle."""

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
    annotated,
    answered,
    filed,
    kept,
    listed,
    pod,
    ran,
    relist,
    said,
    uid_of,
)
from tests.support.joints import joints

FOREIGN = "GPU-0000ffff-5eed-4a5e-9c0d-000000000000"


def joined(*, devices: int = 4) -> Cluster:
    node = Cluster(GPUS[:devices])
    node.tell("gpus", joints(*GPUS[:devices]))
    return node


def free(node: Cluster) -> int | None:
    found = node.snapshot().availability
    return None if found is None else found.free


def containers(*running: str) -> ContainersReplaced:
    """The runtime's list of containers; those named hold the first GPU."""
    found = tuple(
        RunningContainer(
            PartialRef("ml", name, "main", uid_of(name), f"c-{name}"),
            claims=(ran(name, A, evidence=Evidence.RUNTIME_CDI, container_id=f"c-{name}"),),
        )
        for name in running
    )
    return ContainersReplaced(found, GOOD_FOR * NS)


# -- whose word it takes


@pytest.mark.parametrize("source", ["kubelet", "checkpoint", "podlist", "runtime"])
def test_one_that_lists_what_is_held_is_enough(source: str) -> None:
    node = joined()
    assert free(node) is None
    event = containers() if source == "runtime" else ClaimsReplaced((), GOOD_FOR * NS)
    assert node.tell(source, event)
    assert free(node) == 0b1111


def test_pods_alone_report_nothing() -> None:
    """A pod that asked the kubelet for GPUs has nothing written on it of which it was given."""
    node = joined()
    node.pods(pod("a"), pod("b", claims=[annotated("b", B)]))
    assert free(node) is None
    node.kubelet(listed("a", A), listed("b", B))
    assert free(node) == 0b1100


@pytest.mark.parametrize("down", [True, False])
def test_the_kubelet_s_word_stands_until_it_runs_out_and_pods_don_t_prolong_it(down: bool) -> None:
    node = joined()
    node.pods(pod("a"))
    node.tick(5)
    node.kubelet(listed("a", A))
    if down:
        node.tell("kubelet", SourceLost("connection refused"))
    node.tick(GOOD_FOR)
    assert free(node) == 0b1110
    node.pods(pod("a"))
    node.tick(GOOD_FOR + 6)
    assert free(node) is None
    node.kubelet(listed("a", A))
    assert free(node) == 0b1110


def test_containers_that_no_one_lists_any_more_are_unknown() -> None:
    node = joined()
    node.tell("runtime", containers("a"))
    assert free(node) == 0b1110
    node.tick(GOOD_FOR + 1)
    assert free(node) is None


def test_while_another_lists_them_nothing_is_lost() -> None:
    node = joined()
    node.kubelet(listed("a", A))
    node.tick(GOOD_FOR - 10)
    node.checkpoint(kept(uid_of("a"), A))
    node.tick(GOOD_FOR + 1)
    assert free(node) == 0b1110


def test_a_source_exchanged_for_one_of_another_kind_has_to_speak_first() -> None:
    node = joined()
    node.pods(pod("a"))
    node.kubelet()
    assert free(node) == 0b1111
    node.tell("kubelet", SourceRemoved())
    node.say(SourceAdded(2), "kubelet", "checkpoint")
    assert free(node) is None
    node.say(ClaimsReplaced((listed("a", A),), GOOD_FOR * NS), "kubelet", "checkpoint")
    assert free(node) == 0b1110


def test_that_it_becomes_known_or_unknown_is_news() -> None:
    node = joined()
    node.tell("kubelet", SourceLost("not yet"))
    node.tick(1)
    assert node.tell("kubelet", ClaimsReplaced((), NS))
    node.seconds = 3
    assert node.tell("pods", SourceAdded(1))
    assert free(node) is None
    # The kubelet is up: its first word is no news but for this.
    assert node.tell("kubelet", ClaimsReplaced((), NS))
    assert free(node) == 0b1111


# -- ids that are riddles

RIDDLES: list[tuple[str, Claim]] = [
    ("kubelet", listed("a", "no-such-id")),
    ("kubelet", listed("a", "nvidia9")),
    ("kubelet", listed("a", f"{A}-3")),
    ("kubelet", listed("a", f"{FOREIGN}-3")),
    ("kubelet", listed("a", f"{A}-_-3", resource="aliyun.com/gpu-mem")),
    ("kubelet", said(Evidence.KUBELET_IDS, PartialRef("ml", "a", "main"), ["d/p/gpu-0"], "dra")),
    ("checkpoint", answered(uid_of("a"), ["x"], "9")),
    ("podlist", filed("a", "no-such-id")),
    ("runtime", ran("a", "nvidia.com/gpu=9", evidence=Evidence.RUNTIME_CDI)),
]


@pytest.mark.parametrize(("source", "riddle"), RIDDLES, ids=[str(n) for n in range(len(RIDDLES))])
def test_who_holds_no_one_knows_what_may_hold_any(source: str, riddle: Claim) -> None:
    node = joined()
    node.pods(pod("a"), pod("b"))
    node.tick(5)
    node.kubelet(listed("b", B))
    assert free(node) == 0b1101
    node.tell(source, ClaimsReplaced((riddle, listed("b", B)), GOOD_FOR * NS))
    assert node.held() == {B: ["b/main"]}
    assert free(node) is None
    # Until the pod has ended; of its own containers the runtime alone says that.
    ended = relist(pod("a", ended=True), pod("b"))
    over = ClaimsReplaced((), GOOD_FOR * NS) if source == "runtime" else ended
    assert node.tell("runtime" if source == "runtime" else "pods", over)
    assert free(node) == 0b1101


HARMLESS: list[tuple[str, Claim]] = [
    # The id of a device that this node doesn't have: whatever it is, it is none of these.
    ("kubelet", listed("a", FOREIGN)),
    ("kubelet", listed("a", f"{FOREIGN}::4")),
    ("kubelet", listed("a", "MIG-0000ffff-5eed-4a5e-9c0d-000000000000")),
    ("kubelet", listed("a", f"MIG-{FOREIGN}/1/0")),
    ("podlist", filed("a", FOREIGN[4:])),
    # Of network cards, and GPUs that are handed to virtual machines.
    ("kubelet", listed("a", "0000:3b:00.1", resource="nvidia.com/hostdev")),
    ("runtime", ran("a", "nvidia.com/imex-channel=0", evidence=Evidence.RUNTIME_CDI)),
    ("runtime", ran("a", "management.nvidia.com/gpu=all", evidence=Evidence.RUNTIME_CDI)),
    # Every GPU has another number: an annotation means none of them.
    ("kubelet", said(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["9"], "index")),
    ("kubelet", said(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["9"], "minor")),
    ("kubelet", said(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["GPU-x"], "uuid")),
    # Anybody can write this into an image.
    ("runtime", ran("a", "7", evidence=Evidence.RUNTIME_ENV)),
    ("runtime", ran("a", "all", evidence=Evidence.RUNTIME_ENV)),
]


@pytest.mark.parametrize(("source", "claim"), HARMLESS, ids=[str(n) for n in range(len(HARMLESS))])
def test_what_cannot_be_meant_for_these_says_nothing_of_them(source: str, claim: Claim) -> None:
    node = joined()
    node.kubelet()
    node.tell(source, ClaimsReplaced((claim,), GOOD_FOR * NS))
    assert free(node) == 0b1111


@pytest.mark.parametrize("known", ["kubelet", "pods", "checkpoint"])
def test_a_riddle_that_something_else_solves_is_none(known: str) -> None:
    """HAMi's ids only count; its annotation names the GPU that the container really has."""
    node = joined()
    node.pods(pod("a"))
    node.tick(5)
    riddle = listed("a", "vgpu-unit-17", resource="example.com/gpu-units")
    node.kubelet(riddle)
    assert free(node) is None
    if known == "kubelet":
        node.kubelet(riddle, listed("a", A))
    elif known == "pods":
        node.pods(pod("a", claims=[annotated("a", A)]))
    else:
        node.checkpoint(answered(uid_of("a"), ["vgpu-unit-17"], A))
    assert node.held().keys() == {A}
    assert free(node) == 0b1110


def test_placeholders_are_solved_by_an_annotation_too() -> None:
    node = joined()
    node.pods(pod("a"))
    node.tick(5)
    node.kubelet(listed("a", f"{A}-3"))
    assert free(node) is None
    node.pods(pod("a", claims=[annotated("a", B, share=0.5)]))
    assert free(node) == 0b1101


def test_a_number_is_a_riddle_where_a_gpu_has_none() -> None:
    """Where dcgm-exporter's page is all that tells of GPUs, they have no minor numbers."""
    node = joined()
    node.kubelet(said(Evidence.SCHEDULER_ANNOTATION, PartialRef("ml", "a"), ["9"], "minor"))
    assert free(node) == 0b1111
    node.has(*GPUS[:3], replace(GPUS[3], minor=None))
    assert free(node) is None


def test_another_container_s_holding_solves_nothing() -> None:
    node = joined()
    node.kubelet(listed("a", A), listed("a", "no-such-id", container="other"))
    assert free(node) is None
    node.kubelet(listed("a", A), listed("a", "no-such-id", container="other"), listed("b", B))
    assert free(node) is None


def test_names_and_uids_are_brought_together_for_riddles_too() -> None:
    """The list has names and a riddle, the checkpoint uids and what the plugin answered."""
    node = joined()
    node.kubelet(listed("a", "no-such-id"))
    assert free(node) is None
    node.checkpoint(answered(uid_of("a"), ["no-such-id"], A))
    assert free(node) == 0b1110


def test_what_a_checkpoint_keeps_of_a_pod_that_is_gone_is_no_riddle() -> None:
    node = joined()
    node.checkpoint(kept("uid-gone", "no-such-id"))
    assert free(node) is None
    node.kubelet(listed("a", A), complete=True)
    assert free(node) == 0b1110


def test_on_a_node_with_one_gpu_a_placeholder_is_none() -> None:
    node = joined(devices=1)
    node.kubelet(listed("a", f"{A}-3"))
    assert free(node) == 0


# -- the source of the topology


def test_while_the_driver_is_gone_nothing_is_free() -> None:
    node = joined()
    node.kubelet(listed("a", A))
    assert free(node) == 0b1110
    assert node.tell("gpus", SourceLost("the driver is gone"))
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


# -- at any time

EVENTS = st.sampled_from(
    [
        ("kubelet", ClaimsReplaced((), GOOD_FOR * NS)),
        ("kubelet", ClaimsReplaced((listed("a", A),), GOOD_FOR * NS)),
        ("kubelet", ClaimsReplaced((listed("a", "riddle"),), GOOD_FOR * NS)),
        ("checkpoint", ClaimsReplaced((kept(uid_of("a"), B),), 20 * NS)),
        ("podlist", ClaimsReplaced((filed("b", "riddle"),), 20 * NS)),
        ("runtime", containers("a")),
        ("pods", relist(pod("a"), pod("b"))),
        ("pods", relist(pod("a", ended=True))),
        ("gpus", SourceLost("gone")),
        ("gpus", joints(*GPUS)),
        ("kubelet", SourceLost("gone")),
        ("kubelet", SourceRemoved()),
        ("checkpoint", SourceRemoved()),
        ("podlist", SourceRemoved()),
        ("runtime", SourceRemoved()),
    ]
)


@given(st.lists(st.tuples(st.floats(0, 200), EVENTS), max_size=15))
def test_something_is_free_only_while_a_list_stands(
    course: list[tuple[float, tuple[str, ClaimsReplaced]]],
) -> None:
    node = joined()
    now, standing, up = 0.0, dict[str, float](), True
    for rest, (source, event) in course:
        now += rest
        node.tick(now)
        node.tell(source, event)
        if isinstance(event, ClaimsReplaced | ContainersReplaced):
            standing[source] = now + event.good_for_ns / NS
        elif isinstance(event, SourceRemoved):
            standing.pop(source, None)
        elif source == "gpus":
            up = not isinstance(event, SourceLost)
        known = up and any(until >= now for until in standing.values())
        assert known or free(node) is None
