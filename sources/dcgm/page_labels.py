"""The labels of a line, in the spellings of all releases."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pipeline.fields import LABELS

_UUID: Final = ("UUID", "uuid", "gpu_uuid")
_MODEL: Final = ("modelName", "model_name")
_BLANK: Final = "<<<"
"""How DCGM's texts for an unknown value begin."""

_ELSEWHERE: Final = frozenset({"nvlink", "nvswitch", "cpu", "cpucore"})
"""Labels of lines about a link of a GPU or about something else."""

COPY: Final = frozenset({"vgpu", "hpc_job"})
"""Labels of lines that repeat a device's value, or give a part of it, for one of its users."""

_FACTS: Final = {
    label: field.name for field in LABELS for label in (field.dcgm, *field.aliases) if label
}


class LineDevice(NamedTuple):
    """What a line says of its device.

    Attributes:
        uuid: of the GPU, a MIG instance's parent.
        gpu: the exporter's number of the GPU.
        minor: N of `nvidiaN`, as the exporter has it.
        pci: the bus id.
        model: product name.
        gi: id of the GPU instance, None on a GPU's line.
        ci: id of the compute instance where the page has it.
        profile: of the instance.
        facts: texts that never change, by field.
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
    """Return what the labels say."""
    told = {name: text for name, text in labels.items() if text and not text.startswith(_BLANK)}
    return LineDevice(
        uuid=_first(told, _UUID),
        gpu=_number(told.get("gpu", "")),
        minor=_number(told.get("device", "").removeprefix("nvidia")),
        pci=told.get("pci_bus_id", ""),
        model=_first(told, _MODEL),
        gi=_number(told.get("GPU_I_ID", "")),
        ci=_number(told.get("GPU_CI_ID", "")),
        profile=told.get("GPU_I_PROFILE", ""),
        facts=tuple((_FACTS[name], text) for name, text in told.items() if name in _FACTS),
    )


def about_a_device(labels: Mapping[str, str]) -> bool:
    """Whether a line is about a GPU or an instance; a pod may have labels of any name."""
    return _ELSEWHERE.isdisjoint(labels) or "UUID" in labels or "uuid" in labels


def _first(told: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((told[name] for name in names if name in told), "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
