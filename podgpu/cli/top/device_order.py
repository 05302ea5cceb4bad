"""The GPUs and MIG instances that the filter selects, in sort order. Pure."""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from pipeline.status_page.display_text import gpu_name, holder_name, placement_text
from pipeline.status_page.status_document import GpuStatus, InstanceStatus, StatusDocument
from podgpu.cli.top.ui_state import Sort, State

Device: TypeAlias = GpuStatus | InstanceStatus

_LAST: Final = "\U0010ffff"

_GPU: Final = re.compile("gpu[0-9]+")
"""Matches a word of the filter that names one GPU: the word `gpu1` does not select GPU 12."""


def ordered(
    status: StatusDocument, state: State
) -> list[tuple[GpuStatus, Sequence[InstanceStatus]]]:
    """Return the GPUs that the filter selects, each with its selected instances, in sort order."""
    words = state.filter.lower().split()
    found: list[tuple[GpuStatus, list[InstanceStatus]]] = []
    for gpu in status.gpus or ():
        left = _left(gpu, words)
        if left is None:
            continue
        whole = _matches(left, gpu, _word(gpu), gpu.name or "")
        below = [
            each
            for each in gpu.instances
            if whole or _matches(left, each, _word(gpu), each.profile or "", placement_text(each))
        ]
        if whole or below:
            found.append((gpu, below))
    if state.sort is not Sort.INDEX:
        sort = state.sort
        for _, below in found:
            below.sort(key=lambda each: _key(each, sort))
        found.sort(key=lambda one: min([_key(one[0], sort), *(_key(x, sort) for x in one[1][:1])]))
    return [(gpu, below) for gpu, below in found]


def _key(device: Device, sort: Sort) -> tuple[bool, float, str]:
    """Return the sort key of a device: high values first, or names of holders in order.

    Devices without the value come last.
    """
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
    """Return the words that name no GPU; None if a word names another GPU than this one."""
    named = {word for word in words if _GPU.fullmatch(word)}
    if named - {_word(gpu).lower()}:
        return None
    return [word for word in words if word not in named]


def _word(gpu: GpuStatus) -> str:
    """Return a GPU's name without blanks, such as `gpu3`, because filter words have no blanks."""
    return gpu_name(gpu).replace(" ", "")


def _matches(words: Sequence[str], device: Device, *names: str) -> bool:
    """Return whether each word occurs in the names, UUID, state or containers of a device."""
    holders = device.holders or ()
    named = [f"{holder_name(each)} {each.source} {each.evidence}" for each in holders]
    named += [holder_name(each) for each in device.users]
    free = [] if holders or device.holders is None else ["free"]
    searched = "\n".join((*names, device.uuid, device.state, *free, *named)).lower()
    return all(word in searched for word in words)
