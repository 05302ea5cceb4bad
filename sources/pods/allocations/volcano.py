"""Reads annotations of volcano: rows in HAMi's format, and indexes of whole GPUs (old releases)."""

from typing import Final

from pipeline.allocations.annotation_values import AllocatedDevices, group_by_share, whole
from pipeline.model import RawDeviceId
from sources.pods.allocations.hami import held, rows
from sources.pods.allocations.pod_facts import PodFacts

VGPU: Final = "volcano.sh/vgpu-ids-new"
INDEX: Final = "volcano.sh/gpu-index"
_PHASE: Final = "volcano.sh/bind-phase"
_DECIDED: Final = "volcano.sh/predicate-time"


def read_vgpu(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the devices of a pod's containers.

    Nothing is returned until the device plugin has confirmed the allocation.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    if facts.annotations.get(_PHASE, "success") != "success":
        return []
    found = rows(facts.annotations[VGPU], facts, separators_between=True)
    return list(held(found))


def read_index(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the GPUs of a pod, by NVML index, which the device plugin uses too.

    Without the annotation with the time of the scheduler's decision, a user may have written this
    annotation; it is ignored then.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    if _DECIDED not in facts.annotations:
        return []
    numbers = [whole(number.strip()) for number in facts.annotations[INDEX].split(",")]
    return group_by_share((RawDeviceId("index", str(number)), None) for number in numbers)
