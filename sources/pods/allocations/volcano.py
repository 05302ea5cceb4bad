"""volcano: reads rows in HAMi's format, and the indexes of whole GPUs of older releases."""

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
    """Return the devices of a pod's containers, once the device plugin has confirmed them.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    if facts.annotations.get(_PHASE, "success") != "success":
        return []
    found = rows(facts.annotations[VGPU], facts, separators_between=True)
    return list(held(found))


def read_index(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the GPUs of a pod, by NVML index, which is how the device plugin injects them.

    Without the time of the scheduler's decision, the annotation is a user's wish and is ignored.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    if _DECIDED not in facts.annotations:
        return []
    numbers = [whole(number.strip()) for number in facts.annotations[INDEX].split(",")]
    return group_by_share((RawDeviceId("index", str(number)), None) for number in numbers)
