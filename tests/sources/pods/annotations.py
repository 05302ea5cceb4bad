"""Annotations of schedulers, and the claims that result from them."""

import json
from collections.abc import Mapping
from typing import Any

from pipeline.model import PodContainer
from sources.pods.allocations.annotation_table import allocations
from sources.pods.allocations.pod_facts import PodFacts

KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
HAMI = "hami.io/vgpu-devices-allocated"
HAMI_MIG = "hami.io/vgpu-mig-allocations"
HAMI_PHASE = "hami.io/bind-phase"
VGPU = "volcano.sh/vgpu-ids-new"
VOLCANO_PHASE = "volcano.sh/bind-phase"
INDEX = "volcano.sh/gpu-index"
DECIDED = "volcano.sh/predicate-time"
ALIYUN = "ALIYUN_COM_GPU_MEM_IDX"
ALIYUN_POD = "ALIYUN_COM_GPU_MEM_POD"
ALIYUN_DEV = "ALIYUN_COM_GPU_MEM_DEV"
ALIYUN_ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ALIYUN2 = "scheduler.framework.gpushare.allocation"
ALIYUN2_ASSIGNED = "scheduler.framework.gpushare.assigned"
CONFIGURED = "topology.example/gpus"

A = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"
B = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
M = "MIG-a5fa6120-f6fa-51b6-9820-a42112640629"

ONE = (PodContainer("main", "app", "id-main"),)
TWO = (PodContainer("main", "app", "id-main"), PodContainer("side", "app", "id-side"))
WITH_INIT = (
    PodContainer("prepare", "init", "id-prepare"),
    PodContainer("proxy", "sidecar", "id-proxy"),
    PodContainer("main", "app", "id-main"),
    PodContainer("debug", "ephemeral", "id-debug"),
)


REQUESTS = {
    "koordinator.sh/gpu.shared": "2",
    "nvidia.com/gpu": "2",
    "volcano.sh/vgpu-number": "2",
    "volcano.sh/gpu-number": "2",
    "aliyun.com/gpu-mem": "8",
}
"""The resources that each container requests: two GPUs of each scheduler."""


def facts(
    annotations: dict[str, Any],
    containers: tuple[PodContainer, ...] = ONE,
    requested: Mapping[str, str] | None = None,
) -> PodFacts:
    resources = REQUESTS if requested is None else requested
    requests = {one.name: resources for one in containers if one.kind != "ephemeral"}
    return PodFacts("ml", "train-0", "uid-1", annotations, containers, "node-1", requests)


Held = tuple[str, tuple[str, ...], float | None]


def held(annotations: dict[str, Any], containers: tuple[PodContainer, ...] = ONE) -> list[Held]:
    """Return (container, devices as `scheme text`, share) for each claim."""
    claims, complaints = allocations(facts(annotations, containers), (CONFIGURED,))
    assert complaints == {}
    return [
        (c.subject.container, tuple(f"{d.scheme} {d.text}" for d in c.devices), c.share)
        for c in claims
    ]


def koordinator(*gpus: dict[str, Any]) -> dict[str, str]:
    return {KOORDINATOR: json.dumps({"gpu": gpus})}


def gpu(
    minor: object = 0, core: object = None, ratio: object = None, **more: object
) -> dict[str, Any]:
    resources: dict[str, Any] = {"koordinator.sh/gpu-memory": "16Gi"}
    if core is not None:
        resources["koordinator.sh/gpu-core"] = core
    if ratio is not None:
        resources["koordinator.sh/gpu-memory-ratio"] = ratio
    return {"minor": minor, "resources": resources, **more}
