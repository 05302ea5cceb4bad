"""Devices and containers as JSON objects."""

from typing import Any

from pipeline.model import Device, PartialRef, PodInfo


def device(device: Device) -> dict[str, Any]:
    """Return the known properties of a device."""
    result: dict[str, Any] = {"uuid": device.uuid}
    for name in ("index", "minor", "pci_bus_id", "model", "driver"):
        value = getattr(device, name)
        if value not in {None, ""}:
            result[name] = value
    if device.mig is not None:
        result["mig"] = {
            name: value
            for name in ("parent_uuid", "gpu_instance_id", "compute_instance_id", "profile")
            if (value := getattr(device.mig, name)) is not None
        }
    return result


def container(subject: PartialRef, pod: PodInfo | None) -> dict[str, Any]:
    """Return the known properties of a container and its pod."""
    known = {
        "namespace": subject.namespace,
        "pod": subject.pod,
        "container": subject.container,
        "pod_uid": subject.uid,
    }
    result: dict[str, Any] = {name: text for name, text in known.items() if text}
    if pod is not None:
        result |= _pod(pod)
    return result


def _pod(pod: PodInfo) -> dict[str, Any]:
    owner = {"kind": pod.owner_kind, "name": pod.owner_name} if pod.owner_kind else None
    known = {
        "phase": pod.phase,
        "owner": owner,
        "qos_class": pod.qos,
        "labels": dict(pod.labels),
        "annotations": dict(pod.annotations),
    }
    return {name: value for name, value in known.items() if value}
