"""Write checkpoints in the kubelet's format."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.net.protobuf_schema import Schema

GPU = "GPU-fef8089b-4820-abfc-e83e-94318197576e"
OTHER = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
MIG = "MIG-3f9d8a1c-5b6e-5d0a-9c1e-2b7f6a4d8e10"
MOUNTS = "/var/run/nvidia-container-devices"

Ids = Sequence[str] | Mapping[str, Sequence[str] | None] | None

_RESPONSE = Schema.load_from_package("sources.checkpoint", "deviceplugin.binpb").message(
    "v1beta1.ContainerAllocateResponse"
)


def response(
    *,
    env: Mapping[str, str] | None = None,
    mounts: Sequence[str] = (),
    nodes: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    cdi: Sequence[str] = (),
) -> str:
    """Return the response of a device plugin, encoded as in the checkpoint."""
    message = _RESPONSE(
        envs=dict(env or {}),
        mounts=[{"container_path": path} for path in mounts],
        devices=[{"container_path": path} for path in nodes],
        annotations=dict(annotations or {}),
        cdi_devices=[{"name": name} for name in cdi],
    )
    return base64.b64encode(message.SerializeToString()).decode()


def visible(value: str) -> str:
    return response(env={"NVIDIA_VISIBLE_DEVICES": value})


def entry(
    ids: Ids = (GPU,),
    alloc: str | None = "",
    *,
    uid: str = "u1",
    container: str = "main",
    resource: str = "nvidia.com/gpu",
) -> dict[str, Any]:
    if isinstance(ids, Sequence):
        ids = {"-1": ids}
    return {
        "PodUID": uid,
        "ContainerName": container,
        "ResourceName": resource,
        "DeviceIDs": ids,
        "AllocResp": alloc,
    }


def checkpoint(*entries: object, **more: object) -> bytes:
    data = {
        "PodDeviceEntries": list(entries) or None,
        "RegisteredDevices": {"nvidia.com/gpu": [GPU, OTHER]},
    }
    return json.dumps({"Data": data, "Checksum": 2_694_520_111, **more}).encode()


def replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    fresh.replace(path)
