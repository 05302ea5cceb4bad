"""Pods and ResourceSlices as the API server sends them, and how podgpu maps them."""

from typing import Any

from pipeline.model import Instant, Pod
from sources.pods.options import Options
from sources.pods.pod_mapper import PodMapper, PodOmissions
from sources.pods.timestamps import Timestamps

BASE = Instant(5_000_000_000, 1_800_000_000_000_000_000)
STARTED = "2026-11-01T08:00:00Z"


def at(stamp: str = STARTED) -> Instant:
    found = Timestamps(lambda: BASE).parse(stamp)
    assert found is not None
    return found


def raw_container(name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "registry.example/x:1", **more}


def spec_requesting(
    resource: str = "koordinator.sh/gpu-core", amount: str = "50"
) -> dict[str, Any]:
    """Return the spec of a pod that requests devices."""
    return {"containers": [raw_container(resources={"limits": {resource: amount}})]}


def raw_status(name: str = "main", **state: Any) -> dict[str, Any]:
    state = state or {"running": {"startedAt": STARTED}}
    return {"name": name, "containerID": f"containerd://id-{name}", "state": state}


def raw_pod(
    name: str = "train-0",
    *,
    uid: str = "",
    annotations: dict[str, Any] | None = None,
    labels: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": uid or f"uid-{name}",
            "labels": labels or {},
            "annotations": annotations or {},
            **(metadata or {}),
        },
        "spec": {"nodeName": "node-1", "restartPolicy": "Always", "containers": [raw_container()]}
        | (spec or {}),
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort",
            "startTime": STARTED,
            "containerStatuses": [raw_status()],
        }
        | (status or {}),
    }


def mapped(raw: dict[str, Any], **options: Any) -> Pod:
    pod, _ = map_pod(raw, **options)
    assert pod is not None
    return pod


def map_pod(raw: dict[str, Any], **options: Any) -> tuple[Pod | None, list[PodOmissions]]:
    omissions: list[PodOmissions] = []
    mapper = PodMapper(Options(**options), Timestamps(lambda: BASE), omissions.append)
    return mapper(raw), omissions


def raw_slice(
    name: str = "s1",
    *,
    devices: dict[str, str] | None = None,
    generation: int = 1,
    count: int = 1,
    pool: str = "node-1",
    driver: str = "gpu.nvidia.com",
    basic: bool = False,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    raw_devices = []
    for device, uuid in ({"gpu-0": "GPU-0"} if devices is None else devices).items():
        attributes = {"attributes": {"uuid": {"string": uuid}, "type": {"string": "gpu"}}}
        raw_devices.append({"name": device, **({"basic": attributes} if basic else attributes)})
    return {
        "metadata": {"name": name, "generation": 1} | (metadata or {}),
        "spec": {
            "driver": driver,
            "nodeName": "node-1",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": raw_devices,
        },
    }
