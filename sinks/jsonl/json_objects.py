"""Devices and containers as they stand in lines."""

from typing import Any

from pipeline.model import Device, PartialRef, PodInfo


def device(device: Device) -> dict[str, Any]:
    """Return what is known of a device."""
    told: dict[str, Any] = {"uuid": device.uuid}
    for name in ("index", "minor", "pci_bus_id", "model", "driver"):
        value = getattr(device, name)
        if value not in {None, ""}:
            told[name] = value
    if device.mig is not None:
        place: dict[str, Any] = {
            "parent_uuid": device.mig.parent_uuid,
            "gpu_instance_id": device.mig.gpu_instance_id,
            "compute_instance_id": device.mig.compute_instance_id,
            "profile": device.mig.profile,
        }
        if device.mig.compute_instance_id is None:
            del place["compute_instance_id"]
        told["mig"] = place
    return told


def container(subject: PartialRef, pod: PodInfo | None) -> dict[str, Any]:
    """Return what is known of a container, and of its pod."""
    known = {
        "namespace": subject.namespace,
        "pod": subject.pod,
        "container": subject.container,
        "pod_uid": subject.uid,
    }
    told: dict[str, Any] = {name: text for name, text in known.items() if text}
    if pod is not None:
        told |= _pod(pod)
    return told


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
