"""Replaces what identifies GPUs, pods and a machine in the events of a recording."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar, cast

from pipeline.model import (
    Device,
    DeviceUse,
    Envelope,
    Event,
    GpuProcess,
    PodInfo,
    ProcessList,
    ProcessUse,
    RawDeviceId,
    Reading,
    RunningContainer,
    TopologyCard,
    XidReport,
)

T = TypeVar("T")

_UUID: Final = re.compile(
    r"(GPU-|MIG-)?([0-9a-f]{8})([-_])([0-9a-f]{4})\3([0-9a-f]{4})\3([0-9a-f]{4})\3([0-9a-f]{12})"
)
_CONTAINER_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_PATHS: Final = re.compile(r"/[^\s:]*/(kubelet\.sock|podlist\.json|nri\.sock)")
_USUAL: Final = {
    "kubelet.sock": "/var/lib/kubelet/pod-resources/kubelet.sock",
    "podlist.json": "/var/lib/kubelet/pod-resources/podlist.json",
    "nri.sock": "/var/run/nri/nri.sock",
}
_PIDS: Final = 100_000
"""Pids of each recording are renumbered from a multiple of this."""
_BUS: Final = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+")
_NUMBERED: Final = frozenset({"minor", "index", "visible", "cdi"})


class Renaming:
    """Replaces identifiers of one recording by sample ones of the same form, consistently.

    Args:
        number: number of the recording among those that are merged, from 0.
        first: index of its first GPU in the merged recording.
        node: name of its node.
        name: name of the merged recording's node.
    """

    def __init__(self, number: int, first: int, node: str, name: str) -> None:
        self._number, self._first = number, first
        self._node = re.compile(rf"(?<![\w-]){re.escape(node)}(?![\w-])")
        self._name = name
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._pids: dict[int, int] = {}

    def __call__(self, envelope: Envelope) -> Event:
        """Return the event of an envelope with other identifiers."""
        return self._replaced(envelope.event)

    def discover(self, devices: tuple[Device, ...]) -> None:
        """Number GPUs by their order, before any other text names one."""
        for device in sorted(devices, key=lambda one: one.order):
            if device.mig is None:
                self.text(device.uuid)
                self._bus(device.pci_bus_id)

    def text(self, text: str) -> str:
        """Return a text with other uuids, container ids, paths and another name of the node."""
        text = _UUID.sub(self._uuid, text)
        text = _CONTAINER_ID.sub(lambda found: self._container(found[0]), text)
        text = _PATHS.sub(lambda found: _USUAL[found[1]], text)
        return self._node.sub(self._name, text)

    def _serial(self, kind: str, text: str, make: Callable[[int], str]) -> str:
        known = self._known.get((kind, text))
        if known is None:
            count = self._counts[kind] = self._counts.get(kind, -1) + 1
            known = self._known[kind, text] = make(count)
        return known

    def _uuid(self, found: "re.Match[str]") -> str:
        prefix, dash = found[1] or "", found[3]
        text = "-".join(found.group(2, 4, 5, 6, 7))
        if prefix == "GPU-":
            made = self._serial(prefix, text, lambda at: _gpu_uuid(self._first + at))
        elif prefix == "MIG-":
            made = self._serial(
                prefix, text, lambda at: f"{self._first:08x}-5eed-4a5e-9c0d-{at + 7:012d}"
            )
        else:
            made = self._serial("", text, lambda at: f"{self._number:08x}-5eed-4b0d-9c0d-{at:012d}")
        return prefix + made.replace("-", dash)

    def _container(self, text: str) -> str:
        return self._serial("container", text, lambda at: f"{self._number:02x}{at:02x}5eed" * 8)

    def _bus(self, text: str) -> str:
        """Return another PCI bus id of a GPU: those of a node count from 06:00.0."""
        found = _BUS.search(text, text.find(":") + 1 if text.count(":") > 1 else 0)
        if found is None:
            return text
        made = self._serial(
            "bus", found[0].lower(), lambda at: f"{0x18 + 8 * (self._first + at):02x}:00"
        )
        if found[0].upper() == found[0]:
            made = made.upper()
        return text[: found.start()] + made + text[found.end() :]

    def _pid(self, pid: int) -> int:
        base = _PIDS * (1 + self._number)
        return self._pids.setdefault(pid, base + 1 + 7 * len(self._pids))

    def _shifted(self, number: int | None) -> int | None:
        return None if number is None else number + self._first

    def _replaced(self, value: T) -> T:
        kind = type(value)
        if kind is str:
            return cast("T", self.text(cast("str", value)))
        if isinstance(value, Reading):
            attrs = tuple((name, self._attribute(name, text)) for name, text in value.attrs)
            return value._replace(device=self.text(value.device), attrs=attrs)
        if isinstance(value, tuple):
            return cast("T", tuple([self._replaced(one) for one in value]))
        if is_dataclass(value):
            # Everything but times has texts that may identify something.
            old = {one.name: getattr(value, one.name) for one in fields(value)}
            new = {name: self._replaced(item) for name, item in old.items()}
            new.update(self._special(value))
            return kind(**new)
        return value

    def _special(self, value: object) -> Mapping[str, Any]:
        """Return the attributes of an object that its type gives a meaning."""
        match value:
            case Device():
                facts = tuple((name, self._fact(name, text)) for name, text in value.facts)
                return {
                    "index": self._shifted(value.index),
                    "minor": self._shifted(value.minor),
                    "pci_bus_id": self._bus(value.pci_bus_id),
                    "facts": facts,
                }
            case PodInfo():
                return self._metadata(value)
            case TopologyCard():
                return {
                    "index": self._shifted(value.index),
                    "pci_bus_id": self._bus(value.pci_bus_id),
                    "pcie_path": (),
                }
            case GpuProcess() | ProcessUse():
                return {"pid": self._pid(value.pid)}
            case ProcessList():
                listed = self._replaced(value.processes)
                return {"processes": tuple(sorted(listed, key=lambda one: (one.pid, one.kind)))}
            case DeviceUse():
                used = self._replaced(value.processes)
                return {"processes": tuple(sorted(used, key=lambda one: one.pid))}
            case RunningContainer() if value.pid is not None:
                return {"pid": self._pid(value.pid)}
            case XidReport():
                pid = None if value.pid is None else self._pid(value.pid)
                return {"pid": pid, "pci_bus_id": self._bus(value.pci_bus_id)}
            case RawDeviceId() if value.scheme in _NUMBERED and not _UUID.search(value.text):
                return {"text": self._numbers(value)}
            case _:
                return {}

    def _metadata(self, pod: PodInfo) -> Mapping[str, Any]:
        """Return label and owner of a pod that has none: its team is its namespace."""
        name, _, number = pod.name.rpartition("-")
        added: dict[str, Any] = {}
        if not pod.labels:
            added["labels"] = (("team", pod.namespace),)
        if not pod.owner_kind and number.isdecimal():
            added |= {"owner_kind": "StatefulSet", "owner_name": name}
        return added

    def _numbers(self, device: RawDeviceId) -> str:
        """Return the id with the GPU's number, which comes first, as of the merged node."""
        head, equals, last = device.text.rpartition("=")
        return (
            head
            + equals
            + _NUMBER.sub(lambda found: str(int(found[0]) + self._first), last, count=1)
        )

    def _attribute(self, name: str, text: str) -> str:
        match name:
            case "pid":
                return str(self._pid(int(text)))
            case "peer_gpu":
                return str(int(text) + self._first)
            case _:
                return self.text(text)

    def _fact(self, name: str, text: str) -> str:
        if name == "serial":
            return self._serial(
                "serial", text, lambda at: str(1_650_000_000_000 + self._first + at)
            )
        if name == "pci_bus_id":
            return self._bus(text)
        return self.text(text)


def _gpu_uuid(index: int) -> str:
    return f"{index:08x}-5eed-4a5e-9c0d-10{index:010d}"
