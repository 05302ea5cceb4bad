"""Devices according to the kubelet: pod-resources and the checkpoint."""

import base64
import json
from typing import Any

import grpc

from tests.e2e.kube import folders
from tests.e2e.kube.messages import Message, message, method


def pod_resources() -> list[Message]:
    """Return the PodResources of all pods that the kubelet lists."""
    with grpc.insecure_channel(f"unix://{folders.POD_RESOURCES_SOCKET}") as channel:
        request = message("v1.ListPodResourcesRequest")()
        listed = method(channel, "v1.PodResourcesLister", "List")(request, timeout=10)
    return list(listed.pod_resources)


def held(namespace: str = "default") -> dict[str, dict[str, list[str]]]:
    """Return the sorted device ids by pod and container, for containers with devices."""
    found: dict[str, dict[str, list[str]]] = {}
    for pod in pod_resources():
        for container in pod.containers:
            ids = {each for device in container.devices for each in device.device_ids}
            if ids and pod.namespace == namespace:
                found.setdefault(pod.name, {})[container.name] = sorted(ids)
    return found


def registered(resource: str) -> list[str]:
    """Return the healthy registered devices, sorted."""
    if not folders.CHECKPOINT.exists():
        return []
    data = json.loads(folders.CHECKPOINT.read_text())["Data"]
    return sorted((data["RegisteredDevices"] or {}).get(resource) or [])


def checkpoint() -> list[dict[str, Any]]:
    """Return the entries of the checkpoint."""
    entries = json.loads(folders.CHECKPOINT.read_text())["Data"]["PodDeviceEntries"]
    return entries or []


def checkpointed(uid: str) -> dict[str, list[str]]:
    """Return the sorted device ids of a pod's containers in the checkpoint."""
    return {
        entry["ContainerName"]: sorted(each for ids in entry["DeviceIDs"].values() for each in ids)
        for entry in checkpoint()
        if entry["PodUID"] == uid
    }


def answered(uid: str, container: str = "main") -> Message:
    """Return the plugin's ContainerAllocateResponse for a container, from the checkpoint."""
    (entry,) = [
        each
        for each in checkpoint()
        if each["PodUID"] == uid and each["ContainerName"] == container
    ]
    encoded = base64.b64decode(entry["AllocResp"])
    return message("v1beta1.ContainerAllocateResponse").FromString(encoded)
