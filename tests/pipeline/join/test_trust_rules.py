"""The rules of trust: their table, and faults that they prevent, with real readers of raw pods."""

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
    advertised,
    checkpoint_claim,
    kubelet_claim,
    runtime_claim,
    uid_of,
)
from tests.sources.pods.pod_objects import mapped, raw_container, raw_pod
from tests.support.nodes import mig
from tests.support.topology import topology_read

DOCS = Path(__file__).parents[3] / "docs"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"


@pytest.mark.parametrize("page", ["attribution.md", "security.md"])
def test_the_docs_contain_the_table(page: str) -> None:
    assert markdown_table() in (DOCS / page).read_text(encoding="utf-8")


def test_each_kind_of_evidence_has_one_row_and_a_unique_rank() -> None:
    assert sorted(trust.evidence for trust in EVIDENCE_RULES) == sorted(Evidence)
    assert sorted(POD_RANK.values()) == list(range(1, len(Evidence) + 1))


def raw(name: str, limits: dict[str, str], annotations: dict[str, str] | None = None) -> Any:
    spec = {"containers": [raw_container(resources={"limits": limits})]}
    return raw_pod(name, uid=uid_of(name), spec=spec, annotations=annotations)


def node(*raws: Any) -> Cluster:
    cluster = Cluster()
    pods = tuple(mapped(one) for one in raws)
    cluster.seconds = 1
    cluster.emit("pods", PodsReplaced(pods, GOOD_FOR * NS))
    cluster.emit("kubelet", advertised(gpu=[gpu.uuid for gpu in GPUS]))
    return cluster


def allocated(*minors: int, core: str = "100", **more: str) -> dict[str, str]:
    entries = [
        {"minor": minor, "resources": {"koordinator.sh/gpu-core": core}, **more} for minor in minors
    ]
    return {KOORDINATOR: json.dumps({"gpu": entries})}


GPU = {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("limits", "annotations", "allocated_ids", "conflicts"),
    [
        pytest.param(GPU, allocated(3, id=A), [B], {A: 1}, id="a: another pod's GPU"),
        pytest.param(GPU, allocated(2, core="1", id=B), [B], {}, id="b: its own GPU, smaller part"),
        pytest.param({"example.com/fuse": "1"}, allocated(3, id=A), [], {}, id="c: none requested"),
        pytest.param({"example.com/fuse": "1"}, allocated(0, 1, 2, 3), [], {}, id="d: all GPUs"),
        pytest.param(
            {"koordinator.sh/gpu.shared": "4"},
            allocated(0, 1, 2, 3),
            [],
            {A: 1},
            id="all GPUs, requested from a scheduler that manages none",
        ),
    ],
)
def test_t01_an_annotation_moves_no_gpu_that_the_kubelet_allocated(
    limits: dict[str, str],
    annotations: dict[str, str],
    allocated_ids: list[str],
    conflicts: dict[str, int],
) -> None:
    cluster = node(raw("victim", GPU), raw("evil", limits, annotations))
    evil = [kubelet_claim("evil", *allocated_ids)] if allocated_ids else []
    cluster.kubelet(kubelet_claim("victim", A), *evil)
    assert cluster.held() == {A: ["victim/main"]} | {u: ["evil/main"] for u in allocated_ids}
    assert [cluster.shares(uuid) for uuid in cluster.held()] == [[1.0]] * len(cluster.held())
    assert cluster.conflicts() == conflicts
    assert cluster.attribution(A).conflicting_pods == (("ml/evil",) if conflicts else ())


@pytest.mark.parametrize("has_gpu", [True, False])
def test_t02_a_variable_takes_no_device_that_another_container_has(has_gpu: bool) -> None:
    cluster = Cluster()
    cluster.kubelet()
    evil = [runtime_claim("evil", B)] if has_gpu else []
    cluster.runtime(
        runtime_claim("victim", A),
        runtime_claim("evil", A, evidence=Evidence.RUNTIME_ENV, container_id="e"),
        *evil,
    )
    assert cluster.held() == {A: ["victim/main"]} | ({B: ["evil/main"]} if has_gpu else {})
    assert cluster.conflicts() == {A: 1}
    assert [one.subject.pod for one in cluster.attribution(A).access] == ["evil"]


ALL_FOUR = allocated(0, 1, 2, 3)
SLICES = DeviceAliasesReplaced(
    tuple((RawDeviceId("dra", f"gpu.nvidia.com/node-1/gpu-{g.index}"), g.uuid) for g in GPUS)
)
WITHDRAWN = advertised(gpu=[])


@pytest.mark.parametrize(
    ("source", "events"),
    [
        pytest.param("kubelet", [advertised(gpu=[A, B, C, D])], id="offered"),
        pytest.param(
            "kubelet",
            [advertised(gpu=[A, B, C, D]), advertised(gpu=[A, B])],
            id="two are unhealthy",
        ),
        pytest.param("kubelet", [advertised(gpu=[A, B, C, D]), WITHDRAWN], id="plugin restarts"),
        pytest.param(
            "kubelet", [advertised(gpu=[f"{u}::0" for u in (A, B, C, D)])], id="time slices"
        ),
        pytest.param("pods", [SLICES], id="published by a DRA driver"),
        pytest.param("pods", [SLICES, DeviceAliasesReplaced(())], id="slices deleted"),
    ],
)
def test_t01_an_annotation_holds_no_free_gpu_of_a_plugin_or_dra_driver(
    source: str, events: list[Event]
) -> None:
    """A pod with `nodeName` may request a resource that the node does not have."""
    cluster = Cluster()
    cluster.emit("gpus", topology_read(*GPUS))
    cluster.seconds = 1
    for event in events:
        cluster.emit(source, event)
    evil = mapped(raw("evil", {"koordinator.sh/gpu.shared": "4"}, ALL_FOUR))
    cluster.pods(evil)
    cluster.kubelet()
    found = cluster.snapshot().availability
    assert (cluster.held(), found and found.free) == ({}, 0b1111)
    # The kubelet's offer is remembered when the kubelet has not reported for a long time.
    cluster.tick(GOOD_FOR)
    cluster.pods(evil)
    cluster.tick(GOOD_FOR + 5)
    assert cluster.held() == {}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(SourceRemoved(), id="source removed"),
        pytest.param(advertised(gpu=[f"{u}-0" for u in (A, B, C, D)]), id="HAMi takes over"),
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
            id="volcano takes over",
        ),
    ],
)
def test_t01_an_annotation_counts_after_the_plugin_of_the_gpu_is_gone(event: Event) -> None:
    cluster = node(raw("shared", {"koordinator.sh/gpu-core": "100"}, allocated(3)))
    assert cluster.held() == {}
    cluster.emit("kubelet", event)
    assert cluster.held() == {A: ["shared/main"]}
    cluster.emit("kubelet", WITHDRAWN)
    assert cluster.held() == {A: ["shared/main"]}


def test_t01_an_annotation_does_not_hold_the_gpu_of_an_allocated_mig_instance() -> None:
    """The checkpoint is the only source of what the kubelet allocated."""
    instance = mig(GPUS[0], 1)
    cluster = Cluster([*GPUS, instance])
    cluster.pods(
        mapped(raw("victim", {"nvidia.com/mig-1g.10gb": "1"})),
        mapped(raw("evil", {"koordinator.sh/gpu-core": "100"}, allocated(3))),
    )
    cluster.checkpoint(
        checkpoint_claim(uid_of("victim"), instance.uuid, resource="nvidia.com/mig-1g.10gb")
    )
    assert cluster.held() == {instance.uuid: ["victim/main"]}


@pytest.mark.parametrize("named", [allocated(99), allocated(99, id="GPU-x")])
def test_t01_free_gpus_stay_known_if_an_annotation_names_unknown_gpus(
    named: dict[str, str],
) -> None:
    cluster = Cluster()
    cluster.emit("gpus", topology_read(*GPUS))
    cluster.seconds = 1
    cluster.pods(mapped(raw("evil", {"koordinator.sh/gpu-core": "100"}, named)))
    cluster.kubelet()
    found = cluster.snapshot().availability
    assert (cluster.held(), found and found.free) == ({}, 0b1111)


@pytest.mark.parametrize("annotation", [{}, {"hami.io/vgpu-devices-allocated": "x"}])
@pytest.mark.parametrize(("held", "free"), [([], 0b0011), ([A], 0b0010), ([A, B], None)])
def test_t01_free_gpus_of_a_plugin_stay_known_despite_a_placeholder(
    annotation: dict[str, str], held: list[str], free: int | None
) -> None:
    """HAMi has two of the GPUs. Which one its pod got, the pod's author does not reveal."""
    cluster = Cluster()
    cluster.emit("gpus", topology_read(*GPUS))
    cluster.seconds = 1
    cluster.emit("kubelet", advertised(gpu=[A, B, f"{C}-0", f"{D}-0"]))
    cluster.pods(mapped(raw("evil", GPU, annotation)))
    cluster.kubelet(
        kubelet_claim("evil", f"{C}-0"), *(kubelet_claim(f"p-{uuid}", uuid) for uuid in held)
    )
    found = cluster.snapshot().availability
    assert (found and found.free) == free


@pytest.mark.parametrize(
    ("limits", "added", "own"),
    [
        pytest.param({}, kubelet_claim("evil", A), [], id="nothing requested"),
        pytest.param(
            {"example.com/fuse": "1"}, kubelet_claim("evil", A), [], id="another resource"
        ),
        pytest.param(GPU, replace(kubelet_claim("evil", A), relayed=True), [B], id="a GPU"),
        pytest.param(
            GPU, replace(kubelet_claim("evil", C), relayed=True), [B], id="a GPU, another free"
        ),
    ],
)
def test_t01_claims_that_a_kubelet_proxy_adds_count_as_annotations(
    limits: dict[str, str], added: Claim, own: list[str]
) -> None:
    """The proxy repeats the annotation of any pod."""
    cluster = node(raw("victim", GPU), raw("evil", limits, allocated(3, id=A)))
    evil = [kubelet_claim("evil", *own)] if own else []
    cluster.kubelet(kubelet_claim("victim", A), *evil, added)
    assert cluster.held() == {A: ["victim/main"]} | {uuid: ["evil/main"] for uuid in own}
    assert cluster.shares(A) == [1.0]


@pytest.mark.parametrize("offers_all", [True, False])
def test_t01_relayed_claims_count_as_annotations_without_a_source_of_pods(offers_all: bool) -> None:
    cluster = Cluster()
    cluster.emit("kubelet", advertised(gpu=[A, B, C, D] if offers_all else [A]))
    evil = [replace(kubelet_claim("evil", uuid), relayed=True) for uuid in (A, C)]
    cluster.kubelet(kubelet_claim("victim", A), *evil)
    assert cluster.held() == {A: ["victim/main"]} | ({} if offers_all else {C: ["evil/main"]})
    assert cluster.conflicts() == {A: 1}
    assert [one.evidence for one in cluster.attribution(C).holders] == (
        [] if offers_all else [Evidence.SCHEDULER_ANNOTATION]
    )
