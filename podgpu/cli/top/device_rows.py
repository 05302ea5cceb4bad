"""Filter and sort the devices that are shown. Pure."""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from pipeline.status_page.display_text import gpu_name, holder_name, placement_text
from pipeline.status_page.status_document import GpuStatus, InstanceStatus, StatusDocument
from podgpu.cli.top.ui_state import Sort, State

Device: TypeAlias = GpuStatus | InstanceStatus

_LAST: Final = "\U0010ffff"

_GPU: Final = re.compile("gpu[0-9]+")
"""A filter word that names one GPU: `gpu1` does not match `gpu12`."""


def rows(status: StatusDocument, state: State) -> list[Device]:
    """Return the filtered rows in their order. Instances follow their GPU."""
    words = state.filter.lower().split()
    found: list[tuple[GpuStatus, list[InstanceStatus]]] = []
    for gpu in status.gpus or ():
        left = _left(gpu, words)
        if left is None:
            continue
        whole = _matches(_of_gpu(gpu), left)
        below = [each for each in gpu.instances if whole or _matches(_of(gpu, each), left)]
        if whole or below:
            found.append((gpu, below))
    if state.sort is not Sort.INDEX:
        sort = state.sort
        for _, below in found:
            below.sort(key=lambda each: _key(each, sort))
        found.sort(key=lambda one: min([_key(one[0], sort), *(_key(x, sort) for x in one[1][:1])]))
    devices: list[Device] = []
    for gpu, below in found:
        devices += [gpu, *([] if state.folded else below)]
    return devices


def _key(device: Device, sort: Sort) -> tuple[bool, float, str]:
    """Return the sort key: high values first, unknown values last."""
    value: float | None
    match sort:
        case Sort.UTILIZATION:
            value = device.utilization_percent
        case Sort.MEMORY:
            value = device.memory_used_bytes
        case Sort.POWER:
            value = device.power_watts if isinstance(device, GpuStatus) else None
        case Sort.POD:
            names = [holder_name(holder) for holder in device.holders or ()]
            return not names, 0.0, min(names, default=_LAST)
        case Sort.INDEX:
            value = None
    return value is None, -(value or 0.0), ""


def _left(gpu: GpuStatus, words: Sequence[str]) -> list[str] | None:
    """Return the words that do not name a GPU; None if words name other GPUs than this one."""
    named = {word for word in words if _GPU.fullmatch(word)}
    if named - {_word(gpu).lower()}:
        return None
    return [word for word in words if word not in named]


def _matches(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def _of_gpu(gpu: GpuStatus) -> str:
    return _searched(gpu, _word(gpu), gpu.name or "", gpu.uuid)


def _of(gpu: GpuStatus, each: InstanceStatus) -> str:
    return _searched(each, _word(gpu), each.profile or "", placement_text(each), each.uuid)


def _word(gpu: GpuStatus) -> str:
    """Return the name without its blank, such as `gpu3`, because filter words have no blanks."""
    return gpu_name(gpu).replace(" ", "")


def _searched(device: Device, *texts: str) -> str:
    holders = device.holders or ()
    named = [f"{holder_name(each)} {each.source} {each.evidence}" for each in holders]
    free = [] if holders or device.holders is None else ["free"]
    return "\n".join((*texts, device.state, *free, *named)).lower()
