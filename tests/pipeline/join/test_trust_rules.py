"""The rule of trust: its table, and the faults that it answers, through the readers of raw pods."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.join.trust_rules import EVIDENCE_RULES, POD_RANK, markdown_table
from pipeline.model import (
    NS,
    AdvertisedResource,
    Claim,
    DeviceAliasesReplaced,
    Event,
    Evidence,
    PodsReplaced,
    RawDeviceId,
    ResourcesAdvertised,
    SourceRemoved,
)
from tests.pipeline.join.cluster import (
    GOOD_FOR,
    GPUS,
    A,
    B,
    C,
    Cluster,
    D,
    kept,
    listed,
    offer,
    ran,
    uid_of,
)
from tests.sources.pods.raws import distilled, raw_container, raw_pod
from tests.support.joints import joints
from tests.support.nodes import mig

DOCS = Path(__file__).parents[3] / "docs"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"


@pytest.mark.parametrize("page", ["attribution.md", "security.md"])
def test_the_pages_have_the_table(page: str) -> None:
    assert markdown_table() in (DOCS / page).read_text(encoding="utf-8")


def test_each_kind_of_evidence_has_one_row_and_a_rank_of_its_own() -> None:
    assert sorted(trust.evidence for trust in EVIDENCE_RULES) == sorted(Evidence)
    assert sorted(POD_RANK.values()) == list(range(1, len(Evidence) + 1))


def raw(name: str, limits: dict[str, str], annotations: dict[str, str] | None = None) -> Any:
    spec = {"containers": [raw_container(resources={"limits": limits})]}
    return raw_pod(name, uid=uid_of(name), spec=spec, annotations=annotations)


def node(*raws: Any) -> Cluster:
    cluster = Cluster()
    pods = tuple(distilled(one) for one in raws)
    cluster.seconds = 1
    cluster.tell("pods", PodsReplaced(pods, GOOD_FOR * NS))
    cluster.tell("kubelet", offer(gpu=[gpu.uuid for gpu in GPUS]))
    return cluster


def allocated(*minors: int, core: str = "100", **more: str) -> dict[str, str]:
    entries = [
        {"minor": minor, "resources": {"koordinator.sh/gpu-core": core}, **more} for minor in minors
    ]
    return {KOORDINATOR: json.dumps({"gpu": entries})}


GPU = {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("limits", "annotations", "given", "conflicts"),
    [
        pytest.param(GPU, allocated(3, id=A), [B], {A: 1}, id="a: another's GPU"),
        pytest.param(GPU, allocated(2, core="1", id=B), [B], {}, id="b: its own, shrunk"),
        pytest.param({"example.com/fuse": "1"}, allocated(3, id=A), [], {}, id="c: none requested"),
        pytest.param({"example.com/fuse": "1"}, allocated(0, 1, 2, 3), [], {}, id="d: all of them"),
        pytest.param(
            {"koordinator.sh/gpu.shared": "4"},
            allocated(0, 1, 2, 3),
            [],
            {A: 1},
            id="all of them, requested of a scheduler that manages none",
        ),
    ],
)
def test_t01_an_annotation_moves_no_gpu_that_the_kubelet_gave(
    limits: dict[str, str], annotations: dict[str, str], given: list[str], conflicts: dict[str, int]
) -> None:
    cluster = node(raw("victim", GPU), raw("evil", limits, annotations))
    evil = [listed("evil", *given)] if given else []
    cluster.kubelet(listed("victim", A), *evil)
    assert cluster.held() == {A: ["victim/main"]} | {uuid: ["evil/main"] for uuid in given}
    assert [cluster.shares(uuid) for uuid in cluster.held()] == [[1.0]] * len(cluster.held())
    assert cluster.conflicts() == conflicts
    assert cluster.on(A).conflicting_pods == (("ml/evil",) if conflicts else ())


@pytest.mark.parametrize("given", [True, False])
def test_t02_a_variable_takes_no_device_from_the_nodes_really_given(given: bool) -> None:
    cluster = Cluster()
    cluster.kubelet()
    evil = [ran("evil", B)] if given else []
    cluster.runtime(
        ran("victim", A), ran("evil", A, evidence=Evidence.RUNTIME_ENV, container_id="e"), *evil
    )
    assert cluster.held() == {A: ["victim/main"]} | ({B: ["evil/main"]} if given else {})
    assert cluster.conflicts() == {A: 1}
    assert [one.subject.pod for one in cluster.on(A).access] == ["evil"]


ALL_FOUR = allocated(0, 1, 2, 3)
SLICES = DeviceAliasesReplaced(
    tuple((RawDeviceId("dra", f"gpu.nvidia.com/node-1/gpu-{g.index}"), g.uuid) for g in GPUS)
)
WITHDRAWN = offer(gpu=[])


@pytest.mark.parametrize(
    ("source", "given_out"),
    [
        pytest.param("kubelet", [offer(gpu=[A, B, C, D])], id="offered"),
        pytest.param("kubelet", [offer(gpu=[A, B, C, D]), offer(gpu=[A, B])], id="two are ill"),
        pytest.param("kubelet", [offer(gpu=[A, B, C, D]), WITHDRAWN], id="the plugin restarts"),
        pytest.param("kubelet", [offer(gpu=[f"{u}::0" for u in (A, B, C, D)])], id="time slices"),
        pytest.param("pods", [SLICES], id="a DRA driver's"),
        pytest.param("pods", [SLICES, DeviceAliasesReplaced(())], id="its slices are deleted"),
    ],
)
def test_t01_no_free_gpu_of_a_plugin_or_driver_looks_taken(
    source: str, given_out: list[Event]
) -> None:
    """Whoever names the node himself may request a resource that the node doesn't have."""
    cluster = Cluster()
    cluster.tell("gpus", joints(*GPUS))
    cluster.seconds = 1
    for event in given_out:
        cluster.tell(source, event)
    evil = distilled(raw("evil", {"koordinator.sh/gpu.shared": "4"}, ALL_FOUR))
    cluster.pods(evil)
    cluster.kubelet()
    found = cluster.snapshot().availability
    assert (cluster.held(), found and found.free) == ({}, 0b1111)
    # What the kubelet offered is remembered when it has been silent for long.
    cluster.tick(GOOD_FOR)
    cluster.pods(evil)
    cluster.tick(GOOD_FOR + 5)
    assert cluster.held() == {}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(SourceRemoved(), id="the source left"),
        pytest.param(offer(gpu=[f"{u}-0" for u in (A, B, C, D)]), id="HAMi took over"),
        pytest.param(
            ResourcesAdvertised(
                (
                    AdvertisedResource(
                        "volcano.sh/gpu-number",
                        tuple(RawDeviceId("plugin", u) for u in (A, B, C, D)),
                    ),
                ),
                GOOD_FOR * NS,
            ),
            id="volcano took over",
        ),
    ],
)
def test_t01_a_gpu_is_a_scheduler_s_once_its_plugin_has_gone(event: Event) -> None:
    cluster = node(raw("shared", {"koordinator.sh/gpu-core": "100"}, allocated(3)))
    assert cluster.held() == {}
    cluster.tell("kubelet", event)
    assert cluster.held() == {A: ["shared/main"]}
    cluster.tell("kubelet", WITHDRAWN)
    assert cluster.held() == {A: ["shared/main"]}


def test_t01_the_gpu_of_an_instance_that_was_given_out_is_no_scheduler_s() -> None:
    """The checkpoint is the only source of what the kubelet gave out."""
    instance = mig(GPUS[0], 1)
    cluster = Cluster([*GPUS, instance])
    cluster.pods(
        distilled(raw("victim", {"nvidia.com/mig-1g.10gb": "1"})),
        distilled(raw("evil", {"koordinator.sh/gpu-core": "100"}, allocated(3))),
    )
    cluster.checkpoint(kept(uid_of("victim"), instance.uuid, resource="nvidia.com/mig-1g.10gb"))
    assert cluster.held() == {instance.uuid: ["victim/main"]}


@pytest.mark.parametrize("named", [allocated(99), allocated(99, id="GPU-x")])
def test_t01_what_no_gpu_of_the_node_is_leaves_known_what_is_free(named: dict[str, str]) -> None:
    cluster = Cluster()
    cluster.tell("gpus", joints(*GPUS))
    cluster.seconds = 1
    cluster.pods(distilled(raw("evil", {"koordinator.sh/gpu-core": "100"}, named)))
    cluster.kubelet()
    found = cluster.snapshot().availability
    assert (cluster.held(), found and found.free) == ({}, 0b1111)


@pytest.mark.parametrize("annotation", [{}, {"hami.io/vgpu-devices-allocated": "x"}])
@pytest.mark.parametrize(("held", "free"), [([], 0b0011), ([A], 0b0010), ([A, B], None)])
def test_t01_a_placeholder_leaves_known_what_a_plugin_gives_out(
    annotation: dict[str, str], held: list[str], free: int | None
) -> None:
    """HAMi has two of the GPUs; which one its pod was given, the pod's author doesn't let on."""
    cluster = Cluster()
    cluster.tell("gpus", joints(*GPUS))
    cluster.seconds = 1
    cluster.tell("kubelet", offer(gpu=[A, B, f"{C}-0", f"{D}-0"]))
    cluster.pods(distilled(raw("evil", GPU, annotation)))
    cluster.kubelet(listed("evil", f"{C}-0"), *(listed(f"p-{uuid}", uuid) for uuid in held))
    found = cluster.snapshot().availability
    assert (found and found.free) == free


@pytest.mark.parametrize(
    ("limits", "added", "own"),
    [
        pytest.param({}, listed("evil", A), [], id="nothing is requested"),
        pytest.param({"example.com/fuse": "1"}, listed("evil", A), [], id="something else is"),
        pytest.param(GPU, replace(listed("evil", A), relayed=True), [B], id="a GPU is"),
        pytest.param(
            GPU, replace(listed("evil", C), relayed=True), [B], id="a GPU is, another free"
        ),
    ],
)
def test_t01_what_a_proxy_of_the_kubelet_adds_is_the_annotation(
    limits: dict[str, str], added: Claim, own: list[str]
) -> None:
    """It repeats the annotation of any pod."""
    cluster = node(raw("victim", GPU), raw("evil", limits, allocated(3, id=A)))
    mine = [listed("evil", *own)] if own else []
    cluster.kubelet(listed("victim", A), *mine, added)
    assert cluster.held() == {A: ["victim/main"]} | {uuid: ["evil/main"] for uuid in own}
    assert cluster.shares(A) == [1.0]


@pytest.mark.parametrize("closed", [True, False])
def test_t01_where_no_one_reports_of_pods_it_is_an_annotation_s_word(closed: bool) -> None:
    cluster = Cluster()
    cluster.tell("kubelet", offer(gpu=[A, B, C, D] if closed else [A]))
    evil = [replace(listed("evil", uuid), relayed=True) for uuid in (A, C)]
    cluster.kubelet(listed("victim", A), *evil)
    assert cluster.held() == {A: ["victim/main"]} | ({} if closed else {C: ["evil/main"]})
    assert cluster.conflicts() == {A: 1}
    assert [one.evidence for one in cluster.on(C).holders] == (
        [] if closed else [Evidence.SCHEDULER_ANNOTATION]
    )
