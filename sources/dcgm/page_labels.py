"""The labels of a line, in the spellings of all releases of dcgm-exporter."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pipeline.fields import LABELS

_UUID: Final = ("UUID", "uuid", "gpu_uuid")
_MODEL: Final = ("modelName", "model_name")
_BLANK: Final = "<<<"
"""Prefix of DCGM's texts for an unknown value."""

_OTHER_SUBJECTS: Final = frozenset({"nvlink", "nvswitch", "cpu", "cpucore"})
"""Labels of lines about a link, a switch or a CPU instead of a GPU."""

COPY: Final = frozenset({"vgpu", "hpc_job"})
"""Labels of lines that have a device's value, or a part of it, for one of its users."""

_FACTS: Final = {
    label: field.name for field in LABELS for label in (field.dcgm, *field.aliases) if label
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
