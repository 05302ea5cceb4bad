"""Who holds what, as entries of a pod list."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import orjson

from pipeline.model import Attribution, Device, Evidence, Holder

OURS = "podgpu"
"""The value of `writer` in our entries; other readers pass over a key that they don't know."""

Ids = Literal["uuid", "minor"]

Names: TypeAlias = tuple[str, str, str]
"""Namespace, pod and container."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A container that holds devices.

    Attributes:
        names: of the container.
        devices: for each device the texts that mean it in a `gpu_list`.
        text: the entry as it is written.
    """

    names: Names
    devices: tuple[frozenset[str], ...]
    text: bytes


def entries_of(attributions: Iterable[Attribution], ids: Ids) -> tuple[Entry, ...]:
    """Return one entry for each container that holds something, sorted by its names.

    Left out is who has not been named in full, and who is a holder by a pod list's word: that
    somebody else has written, and it must not come to stand twice.

    Args:
        attributions: in device order.
        ids: what a GPU is called.
    """
    held: dict[Names, dict[str, Device]] = {}
    for attribution in attributions:
        device = attribution.device
        for holder in attribution.holders:
            names = _names(holder)
            if all(names) and holder.evidence is not Evidence.POD_LIST_FILE:
                # Two pods of one name, one of them not gone yet, are one container to a reader.
                held.setdefault(names, {})[device.uuid] = device
    entries = (_entry(names, devices.values(), ids) for names, devices in sorted(held.items()))
    return tuple(entry for entry in entries if entry is not None)


def _names(holder: Holder) -> Names:
    subject = holder.subject
    return subject.namespace, subject.pod, subject.container


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
        return None  # half a surrogate pair: that is the name of no container
    return Entry(names, tuple(map(_known_as, devices)), text)


def _id(device: Device, ids: Ids) -> str:
    # An instance has its GPU's minor number, which would claim the whole GPU.
    if ids == "uuid" or device.mig is not None or device.minor is None:
        return device.uuid
    return str(device.minor)


def _known_as(device: Device) -> frozenset[str]:
    return frozenset({device.uuid, _id(device, "minor")})
