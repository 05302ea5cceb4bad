"""Reads annotations of KAI Scheduler and Run:ai: pods share a GPU that a reservation pod holds.

For each group of pods that share a GPU, the scheduler creates a reservation pod in a separate
namespace. That pod requests a whole GPU, and writes the GPU's UUID into its own annotation. The
pods of the group request no device. A label names their group: `runai-gpu-group: <group>` for one
GPU, and `runai-gpu-group/<group>: <group>` for each of several GPUs.
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
"""Annotation of a reservation pod. Its value is a UUID, not an index."""

GROUP: Final = "runai-gpu-group"
_FRACTION: Final = "gpu-fraction"
_MEMORY: Final = "gpu-memory"
_NUMBER: Final = "gpu-fraction-num-devices"
_CONTAINER: Final = "gpu-fraction-container-name"

_PART: Final = re.compile(r"(?=\.?[0-9])[0-9]{0,3}(?:\.[0-9]{0,17})?")


def groups(labels: Mapping[str, Any]) -> list[str]:
    """Return the names of the groups in a pod's labels, sorted."""
    found = {
        value
        for key, value in labels.items()
        if isinstance(value, str) and value and (key == GROUP or key.startswith(f"{GROUP}/"))
    }
    return sorted(found)


def read_reservation(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the GPU of a reservation pod; nothing if its annotation is not written yet.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    value = facts.annotations.get(RESERVED)
    if value is None:  # not written yet
        return []
    return [AllocatedDevices((uuid(value if isinstance(value, str) else ""),))]


def read_shared(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the devices that a pod shares: the GPUs of the reservation pods of its groups.

    Annotations give the pod's share. `gpu-fraction` is the share of each GPU. With `gpu-memory`,
    an amount in MiB, the share is unknown.

    Raises:
        MalformedError: the pod requests no share, its labels name more groups than it requests
            GPUs, or an annotation cannot be read.
    """
    if _FRACTION not in facts.annotations and _MEMORY not in facts.annotations:
        raise MalformedError(f"the pod requests no share of a GPU: no {_FRACTION} and no {_MEMORY}")
    found = groups(facts.labels)
    number = whole(facts.annotations.get(_NUMBER, 1), f"{_NUMBER}: ")
    if len(found) > min(number, MOST):
        raise MalformedError(f"names {len(found)} groups, but {_NUMBER} is {number}")
    devices = tuple(RawDeviceId("reserved", group) for group in found)
    return [AllocatedDevices(devices, _container(facts), _share(facts))]


def _container(facts: PodFacts) -> str:
    """Return the name of the container that gets the GPU: by default the first app container."""
    name = facts.annotations.get(_CONTAINER)
    if name is None:
        return next(iter(facts.names()), "")
    if name not in facts.names(init=True):
        raise_malformed(f"{_CONTAINER}: ", "a container of the pod", name)
    return str(name)


def _share(facts: PodFacts) -> float | None:
    value = facts.annotations.get(_FRACTION)
    if value is None or _MEMORY in facts.annotations:
        return None
    part = float(value) if isinstance(value, str) and _PART.fullmatch(value) else 0
    if not 0 < part < 1:
        raise_malformed(f"{_FRACTION}: ", "a number above 0 and below 1", value)
    return part
