"""KAI Scheduler and run:ai: pods share a GPU that a reservation pod got from the kubelet.

For each group of pods that share a GPU the scheduler makes a pod in a namespace of its own, which
requests one whole GPU and writes the GPU's uuid on itself. The pods of the group request no device;
a label of theirs names the group: `runai-gpu-group: <group>` for one GPU, and
`runai-gpu-group/<group>: <group>` for each of several.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pipeline.allocations.annotation_values import (
    MOST,
    AllocatedDevices,
    MalformedError,
    raise_malformed,
    uuid,
    whole,
)
from pipeline.model import RawDeviceId
from sources.pods.allocations.pod_facts import PodFacts

RESERVED: Final = "run.ai/reserve_for_gpu_index"
"""Annotation of a reservation pod. Its value is a uuid, not an index."""

GROUP: Final = "runai-gpu-group"
_FRACTION: Final = "gpu-fraction"
_MEMORY: Final = "gpu-memory"
_NUMBER: Final = "gpu-fraction-num-devices"
_CONTAINER: Final = "gpu-fraction-container-name"

_PART: Final = re.compile(r"(?=\.?[0-9])[0-9]{0,3}(?:\.[0-9]{0,17})?")


def groups(labels: Mapping[str, Any]) -> list[str]:
    """Return the groups that a pod's labels name."""
    found = {
        value
        for key, value in labels.items()
        if isinstance(value, str) and value and (key == GROUP or key.startswith(f"{GROUP}/"))
    }
    return sorted(found)


def read_reservation(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the GPU that a reservation pod wrote on itself.

    Raises:
        MalformedError: the annotation can't be read.
    """
    told = facts.annotations.get(RESERVED)
    if told is None:  # not written yet
        return []
    return [AllocatedDevices((uuid(told if isinstance(told, str) else ""),))]


def read_shared(facts: PodFacts) -> list[AllocatedDevices]:
    """Return what a pod shares: the GPUs that the reservation pods of its groups hold.

    A pod requests its part by an annotation. `gpu-fraction` is the part of each GPU. With
    `gpu-memory`, an amount in MiB, the part is unknown.

    Raises:
        MalformedError: the pod requests no part, its labels name more groups than it asks for
            GPUs, or an annotation can't be read.
    """
    if _FRACTION not in facts.annotations and _MEMORY not in facts.annotations:
        raise MalformedError(f"the pod requests no part of a GPU: no {_FRACTION} and no {_MEMORY}")
    found = groups(facts.labels)
    asked = whole(facts.annotations.get(_NUMBER, 1), f"{_NUMBER}: ")
    if len(found) > min(asked, MOST):
        raise MalformedError(f"names {len(found)} groups, and {_NUMBER} is {asked}")
    devices = tuple(RawDeviceId("reserved", group) for group in found)
    return [AllocatedDevices(devices, _container(facts), _share(facts))]


def _container(facts: PodFacts) -> str:
    """Return the container that the scheduler gives the GPU: the first one by default."""
    told = facts.annotations.get(_CONTAINER)
    if told is None:
        return next(iter(facts.names()), "")
    if told not in facts.names(init=True):
        raise_malformed(f"{_CONTAINER}: ", "a container of the pod", told)
    return str(told)


def _share(facts: PodFacts) -> float | None:
    told = facts.annotations.get(_FRACTION)
    if told is None or _MEMORY in facts.annotations:
        return None
    part = float(told) if isinstance(told, str) and _PART.fullmatch(told) else 0
    if not 0 < part < 1:
        raise_malformed(f"{_FRACTION}: ", "a number above 0 and below 1", told)
    return part
