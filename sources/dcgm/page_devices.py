"""Collects the devices of a page from the labels of all its lines."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pipeline.model import Device, MigPlace
from sources.dcgm.page_labels import LineDevice

_DRIVER: Final = "driver_version"
_INSTANCE: Final = "MIG-"


@dataclass(slots=True)
class _Gpu:
    """What the lines show about a GPU; the first line counts if they differ."""

    gpu: int | None = None
    minor: int | None = None
    pci: str = ""
    model: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    slices: dict[tuple[int, int | None], str] = field(default_factory=dict)


class Gpus:
    """Collects devices, and finds the device of a line.

    A line without a uuid belongs to the GPU with its number or its bus id on other lines.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Gpu] = {}
        self._by_number: dict[int, str] = {}
        self._by_bus_id: dict[str, str] = {}

    def add(self, device: LineDevice) -> None:
        """Add the labels of a line's device."""
        uuid = device.uuid
        if not uuid or uuid.startswith(_INSTANCE):
            return
        gpu = self._gpus.setdefault(uuid, _Gpu())
        gpu.gpu = device.gpu if gpu.gpu is None else gpu.gpu
        gpu.minor = device.minor if gpu.minor is None else gpu.minor
        gpu.pci = gpu.pci or device.pci
        gpu.model = gpu.model or device.model
        for name, text in device.facts:
            gpu.facts.setdefault(name, text)
        if device.gi is not None:
            key = (device.gi, device.ci)
            gpu.slices[key] = gpu.slices.get(key) or device.profile
        if device.gpu is not None:
            self._by_number.setdefault(device.gpu, uuid)
        if device.pci:
            self._by_bus_id.setdefault(device.pci, uuid)

    def find(self, device: LineDevice) -> str | None:
        """Return the uuid of a line's device; for a MIG instance, the name of its placement."""
        uuid = device.uuid or self._by_bus_id.get(device.pci, "")
        if not uuid and device.gpu is not None:
            uuid = self._by_number.get(device.gpu, "")
        gpu = self._gpus.get(uuid)
        if gpu is None or device.gi is None:
            return None if gpu is None else uuid
        gpu.slices.setdefault((device.gi, device.ci), device.profile)
        return MigPlace(uuid, device.gi, device.ci, "").name

    def devices(self) -> tuple[Device, ...]:
        """Return all GPUs and MIG instances."""
        return tuple(
            device for uuid, gpu in self._gpus.items() for device in _with_slices(uuid, gpu)
        )


def _with_slices(uuid: str, gpu: _Gpu) -> Iterable[Device]:
    driver, facts = gpu.facts.get(_DRIVER, ""), tuple(sorted(gpu.facts.items()))
    yield Device(uuid, gpu.gpu, gpu.minor, gpu.pci, gpu.model, driver, None, facts)
    for (gi, ci), profile in gpu.slices.items():
        mig = MigPlace(uuid, gi, ci, profile)
        yield Device(mig.name, gpu.gpu, gpu.minor, gpu.pci, gpu.model, driver, mig, facts)
