"""Reads annotations of Aliyun's gpushare: shares of the memory of one GPU or of several GPUs."""

from typing import Final

from pipeline.allocations.annotation_values import (
    AllocatedDevices,
    MalformedError,
    as_object,
    group_by_share,
    parsed,
    whole,
)
from pipeline.model import RawDeviceId
from sources.pods.allocations.pod_facts import PodFacts

INDEX: Final = "ALIYUN_COM_GPU_MEM_IDX"
_OF_POD: Final = "ALIYUN_COM_GPU_MEM_POD"
_OF_DEVICE: Final = "ALIYUN_COM_GPU_MEM_DEV"
_INDEX_ASSIGNED: Final = "ALIYUN_COM_GPU_MEM_ASSIGNED"

ALLOCATION: Final = "scheduler.framework.gpushare.allocation"
_ASSIGNED: Final = "scheduler.framework.gpushare.assigned"


def read_index(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the GPU of a pod, by N of `/dev/nvidiaN`.

    Nothing is returned until the device plugin has confirmed the allocation.

    Raises:
        MalformedError: one of the annotations cannot be read.
    """
    annotations = facts.annotations
    # The newer annotation has more details. -1 means that the scheduler failed.
    if (
        ALLOCATION in annotations
        or annotations.get(_INDEX_ASSIGNED) == "false"
        or annotations[INDEX] == "-1"
    ):
        return []
    device = RawDeviceId("minor", str(whole(annotations[INDEX])))
    share = None
    if _OF_POD in annotations and _OF_DEVICE in annotations:
        part = whole(annotations[_OF_POD], f"{_OF_POD}: ")
        of = whole(annotations[_OF_DEVICE], f"{_OF_DEVICE}: ")
        share = part / of if 0 < part <= of else None
    return group_by_share([(device, share)])


def read_allocation(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the GPUs of containers: `{"0": {"1": 4}}` means 4 GiB of GPU 1 for the first one.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    if facts.annotations.get(_ASSIGNED) == "false":
        return []
    allocation = as_object(parsed(facts.annotations[ALLOCATION]))
    names = facts.names()
    found: list[AllocatedDevices] = []
    for number, gpus in allocation.items():
        container = whole(number)
        if container >= len(names):
            raise MalformedError(f"container {container}: the pod has only {len(names)}")
        if gpus and not facts.requests_resource(names[container]):
            raise MalformedError(
                f"container {container} has a device, but {names[container]} requests none"
            )
        place = f"container {container}: "
        minors = [whole(gpu, place) for gpu in as_object(gpus, place)]
        devices = [(RawDeviceId("minor", str(minor)), None) for minor in minors]
        found += group_by_share(devices, names[container])
    return found
