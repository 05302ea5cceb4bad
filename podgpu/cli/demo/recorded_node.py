"""Read the devices and the pods of a recording's beginning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline.model import NS, Device, DevicesDiscovered, PodInfo, PodsReplaced
from pipeline.recording import RecordingReader

_BEGINNING_NS: Final = 3 * NS
"""Nanoseconds from the start of a recording in which all sources report."""


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """The node of a recording.

    Attributes:
        name: name of the node.
        devices: GPUs and MIG instances, sorted by index.
        pods: pods by namespace and name.
        ages: how long before the recording each of them began, in nanoseconds.
    """

    name: str
    devices: tuple[Device, ...]
    pods: Mapping[tuple[str, str], PodInfo]
    ages: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def device(self, place: int | tuple[int, int]) -> Device | None:
        """Return a GPU, or a MIG instance of it; None if the node does not have it.

        Args:
            place: index of a GPU, or index of a GPU and position of a MIG instance, from 0.
        """
        index, position = (place, None) if isinstance(place, int) else place
        found = [
            one
            for one in self.devices
            if one.index == index and (one.mig is None) == (position is None)
        ]
        at = position or 0
        return found[at] if at < len(found) else None


def read_node(path: Path) -> RecordedNode:
    """Read the first seconds of a recording.

    Raises:
        OSError: the file cannot be read.
        RecordingError: the file is not a recording, or is damaged.
    """
    devices: dict[str, Device] = {}
    pods: dict[tuple[str, str], PodInfo] = {}
    ages: dict[tuple[str, str], int] = {}
    with RecordingReader(path) as reader:
        for envelope in reader:
            if envelope.at.mono_ns - reader.header.started.mono_ns > _BEGINNING_NS:
                break
            if isinstance(envelope.event, DevicesDiscovered):
                devices |= {one.uuid: one for one in envelope.event.devices}
            elif isinstance(envelope.event, PodsReplaced):
                for one in envelope.event.pods:
                    key = one.info.namespace, one.info.name
                    pods[key] = one.info
                    if one.started is not None:
                        ages[key] = max(reader.header.started.wall_ns - one.started.wall_ns, 0)
        name = reader.header.node
    ordered = sorted(devices.values(), key=lambda one: one.order)
    return RecordedNode(name, tuple(ordered), pods, ages)
