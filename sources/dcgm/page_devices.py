"""Collects the devices of a page from the labels of all its lines.

Labels are read in the spellings of all releases of dcgm-exporter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from pipeline.fields import LABELS
from pipeline.model import Device, MigPlace

_DRIVER: Final = "driver_version"
_INSTANCE: Final = "MIG-"
_BLANK: Final = "<<<"
"""Prefix of DCGM's texts for an unknown value."""

_OTHER_SUBJECTS: Final = frozenset({"nvlink", "nvswitch", "cpu", "cpucore"})
"""Labels of lines about a link, a switch or a CPU instead of a GPU."""

COPY: Final = frozenset({"vgpu", "hpc_job"})
"""Labels of lines that have a device's value, or a part of it, for one of its users."""

_FACTS: Final = {
    label: spec.name for spec in LABELS for label in (spec.dcgm, *spec.aliases) if label
}

_KEYS: Final = {
    "UUID": "uuid",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "modelName": "model",
    "model_name": "model",
    "pci_bus_id": "bus_id",
    "gpu": "index",
    "device": "minor",
    **_FACTS,
}
"""What labels show about a GPU. If several labels show the same, the first one here counts."""


class LineDevice(NamedTuple):
    """What the labels of a line show about its device.

    Attributes:
        texts: what the labels show about the GPU, which is the parent of a MIG instance; the keys
            are the values of `_KEYS`.
        gi: id of the GPU instance; None for a GPU.
        ci: id of the compute instance; None if the page does not have it.
        profile: profile of the MIG instance; empty for a GPU or if unknown.
    """

    texts: dict[str, str]
    gi: int | None
    ci: int | None
    profile: str

    @property
    def gpu(self) -> "LineDevice":
        """The GPU; for a MIG instance the one that it is a part of."""
        return self._replace(gi=None, ci=None, profile="")


class _Gpu(NamedTuple):
    """What the lines show about a GPU; the first line counts if they differ."""

    texts: dict[str, str]
    slices: dict[tuple[int, int | None], str]


class PageDevices:
    """Collects devices, and finds the device of a line.

    A line without a uuid belongs to the GPU with its number or its bus id on other lines.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Gpu] = {}
        self._uuids: dict[tuple[str, str], str] = {}

    def add(self, device: LineDevice) -> None:
        """Add the labels of a line's device."""
        uuid = device.texts.get("uuid", "")
        if not uuid or uuid.startswith(_INSTANCE):
            return
        gpu = self._gpus.setdefault(uuid, _Gpu({}, {}))
        for key, text in device.texts.items():
            gpu.texts.setdefault(key, text)
            self._uuids.setdefault((key, text), uuid)
        if device.gi is not None:
            ids = (device.gi, device.ci)
            gpu.slices[ids] = gpu.slices.get(ids) or device.profile

    def find(self, device: LineDevice) -> str | None:
        """Return the uuid of a line's device, or the name of a MIG placement; None if unknown."""
        texts, uuid = device.texts, device.texts.get("uuid", "")
        for key in ("bus_id", "index"):
            uuid = uuid or self._uuids.get((key, texts.get(key, "")), "")
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
    texts = gpu.texts
    known = Device(
        uuid,
        _number(texts.get("index", "")),
        _number(texts.get("minor", "")),
        texts.get("bus_id", ""),
        texts.get("model", ""),
        texts.get(_DRIVER, ""),
        facts=tuple(sorted((key, texts[key]) for key in texts.keys() & set(_FACTS.values()))),
    )
    yield known
    for (gi, ci), profile in gpu.slices.items():
        mig = MigPlace(uuid, gi, ci, profile)
        yield replace(known, uuid=mig.name, mig=mig)


def device_of(labels: Mapping[str, str]) -> LineDevice:
    """Return what the labels of a line show about its device."""
    shown = {name: text for name, text in labels.items() if text and not text.startswith(_BLANK)}
    texts: dict[str, str] = {}
    for label, key in _KEYS.items():
        text = shown.get(label, "").removeprefix("nvidia" if label == "device" else "")
        if text and (key not in ("index", "minor") or _number(text) is not None):
            texts.setdefault(key, text)
    gi, ci = (_number(shown.get(label, "")) for label in ("GPU_I_ID", "GPU_CI_ID"))
    return LineDevice(texts, gi, ci, shown.get("GPU_I_PROFILE", ""))


def about_a_device(labels: Mapping[str, str]) -> bool:
    """Return whether a line is about a GPU or MIG instance; pod labels may have any name."""
    return _OTHER_SUBJECTS.isdisjoint(labels) or "UUID" in labels or "uuid" in labels


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
