"""Collects the devices of a page from the labels of all its lines.

Labels are read in the spellings of all releases of dcgm-exporter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.fields import LABELS
from pipeline.model import Device, MigPlace

_DRIVER: Final = "driver_version"
_INSTANCE: Final = "MIG-"
_UUID: Final = ("UUID", "uuid", "gpu_uuid")
_MODEL: Final = ("modelName", "model_name")
_BLANK: Final = "<<<"
"""Prefix of DCGM's texts for an unknown value."""

_OTHER_SUBJECTS: Final = frozenset({"nvlink", "nvswitch", "cpu", "cpucore"})
"""Labels of lines about a link, a switch or a CPU instead of a GPU."""

COPY: Final = frozenset({"vgpu", "hpc_job"})
"""Labels of lines that have a device's value, or a part of it, for one of its users."""

_FACTS: Final = {
    label: spec.name for spec in LABELS for label in (spec.dcgm, *spec.aliases) if label
}


class LineDevice(NamedTuple):
    """What the labels of a line show about its device.

    Attributes:
        uuid: of the GPU; of the parent for a MIG instance.
        gpu: the exporter's number of the GPU.
        minor: N of `nvidiaN`, according to the exporter.
        pci: the PCI bus id.
        model: the product name.
        gi: id of the GPU instance; None for a GPU.
        ci: id of the compute instance, if the page has it.
        profile: of the MIG instance.
        facts: constant texts, by field.
    """

    uuid: str
    gpu: int | None
    minor: int | None
    pci: str
    model: str
    gi: int | None
    ci: int | None
    profile: str
    facts: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Gpu:
    """What the lines show about a GPU; the first line counts if they differ."""

    gpu: int | None = None
    minor: int | None = None
    pci: str = ""
    model: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    slices: dict[tuple[int, int | None], str] = field(default_factory=dict)


class PageDevices:
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


def device_of(labels: Mapping[str, str]) -> LineDevice:
    """Return what the labels of a line show about its device."""
    texts = {name: text for name, text in labels.items() if text and not text.startswith(_BLANK)}
    return LineDevice(
        uuid=_first(texts, _UUID),
        gpu=_number(texts.get("gpu", "")),
        minor=_number(texts.get("device", "").removeprefix("nvidia")),
        pci=texts.get("pci_bus_id", ""),
        model=_first(texts, _MODEL),
        gi=_number(texts.get("GPU_I_ID", "")),
        ci=_number(texts.get("GPU_CI_ID", "")),
        profile=texts.get("GPU_I_PROFILE", ""),
        facts=tuple((_FACTS[name], text) for name, text in texts.items() if name in _FACTS),
    )


def about_a_device(labels: Mapping[str, str]) -> bool:
    """Return whether a line is about a GPU or MIG instance; pod labels may have any name."""
    return _OTHER_SUBJECTS.isdisjoint(labels) or "UUID" in labels or "uuid" in labels


def _first(texts: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((texts[name] for name in names if name in texts), "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
