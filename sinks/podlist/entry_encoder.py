"""Convert attributions to entries of a pod list."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import orjson

from pipeline.model import Attribution, Device, Evidence

OURS = "podgpu"
"""Value of `writer` in podgpu's entries. Other readers ignore this key."""

Ids = Literal["uuid", "minor"]

Names: TypeAlias = tuple[str, str, str]
"""Namespace, pod and container."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a pod list: a container and its devices.

    Attributes:
        names: namespace, pod and name of the container.
        devices: for each device, all ids by which a `gpu_list` can name it.
        text: the entry as JSON.
    """

    names: Names
    devices: tuple[frozenset[str], ...]
    text: bytes


def entries_of(attributions: Iterable[Attribution], ids: Ids) -> tuple[Entry, ...]:
    """Return one entry for each container that holds a device, sorted by names.

    Containers without a complete name are left out, and so are jobs and containers without pods.
    Holders that podgpu read from a pod list are left out too: another program wrote them, and they
    must not occur twice.

    Args:
        attributions: attributions in device order.
        ids: how GPUs are identified.
    """
    held: dict[Names, dict[str, Device]] = {}
    for attribution in attributions:
        device = attribution.device
        for holder in attribution.holders:
            subject = holder.subject
            names = subject.namespace, subject.pod, subject.container
            if subject.kind != "pod":
                continue
            if all(names) and holder.evidence is not Evidence.POD_LIST_FILE:
                # Two pods with one name, one of them terminating, are one container for readers.
                held.setdefault(names, {})[device.uuid] = device
    entries = (_entry(names, devices.values(), ids) for names, devices in sorted(held.items()))
    return tuple(entry for entry in entries if entry is not None)


def _entry(names: Names, devices: Iterable[Device], ids: Ids) -> Entry | None:
    namespace, pod, container = names
    content = {
        "name": pod,
        "namespace": namespace,
        "container": container,
        "gpu_list": [_id(device, ids) for device in devices],
        "writer": OURS,
    }
    try:
        text = orjson.dumps(content)
    except orjson.JSONEncodeError:
        return None  # a lone surrogate, which no container name has
    return Entry(names, tuple(map(_all_ids, devices)), text)


def _id(device: Device, ids: Ids) -> str:
    # A MIG instance has the minor number of its GPU, which would mean the whole GPU.
    if ids == "uuid" or device.mig is not None or device.minor is None:
        return device.uuid
    return str(device.minor)


def _all_ids(device: Device) -> frozenset[str]:
    return frozenset({device.uuid, _id(device, "minor")})
