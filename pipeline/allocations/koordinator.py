"""koordinator: `{"gpu": [{"minor": 1, "id": "GPU-...", "resources": {...}}]}`, for a whole pod."""

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, Final

from pipeline.allocations.annotation_values import (
    MOST,
    AllocatedDevices,
    MalformedError,
    as_object,
    group_by_share,
    parsed,
    raise_malformed,
    uuid,
    whole,
)
from pipeline.model import RawDeviceId

ANNOTATION: Final = "scheduling.koordinator.sh/device-allocated"

_SHARES: Final = (
    "koordinator.sh/gpu-core",
    "kubernetes.io/gpu-core",
    "koordinator.sh/gpu-memory-ratio",
    "kubernetes.io/gpu-memory-ratio",
)
"""Resources that define the share, also under their names before 1.0. The first one with a valid
share is used."""
_QUANTITY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(m|k|)")
_UNITS: Final = {"m": Fraction(1, 1000), "k": Fraction(1000), "": Fraction(1)}


def read(annotation: str) -> list[AllocatedDevices]:
    """Return the devices of a pod. koordinator writes the annotation when it binds the pod.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    return group_by_share(_devices(_gpus(annotation)))


def minors(annotation: str) -> dict[int, str]:
    """Return N of each `/dev/nvidiaN` of a pod, in the order of the annotation.

    Returns:
        By N, the uuid in the same entry; empty if the entry has none.

    Raises:
        MalformedError: the annotation cannot be read, a GPU has no minor number, or one number has
            two uuids.
    """
    found: dict[int, str] = {}
    for place, gpu in _gpus(annotation):
        minor = whole(gpu.get("minor"), f"{place}.minor: ")
        device = _device(gpu, place)
        named = device.text if device.scheme == "uuid" else ""
        if found.setdefault(minor, named) != named:
            raise MalformedError(f"{place}: minor {minor} has two different ids")
    return found


def _gpus(annotation: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the GPUs, each with its position in the text."""
    gpus = as_object(parsed(annotation)).get("gpu")
    if gpus is None:  # only network cards
        return []
    if not isinstance(gpus, list):
        raise_malformed(".gpu: ", "a list", gpus)
    if len(gpus) > MOST:
        raise MalformedError(f"more than {MOST} devices")
    places = [(f".gpu[{number}]", gpu) for number, gpu in enumerate(gpus)]
    return [(place, as_object(gpu, f"{place}: ")) for place, gpu in places]


def _devices(
    gpus: Iterable[tuple[str, dict[str, Any]]],
) -> Iterator[tuple[RawDeviceId, float | None]]:
    for place, gpu in gpus:
        where, resources = f"{place}.resources", gpu.get("resources")
        resources = {} if resources is None else as_object(resources, f"{where}: ")
        yield _device(gpu, place), _share(resources, where)


def _device(gpu: dict[str, Any], place: str) -> RawDeviceId:
    # Releases before 1.6 write no id; later ones write an empty one where they do not know it.
    if identity := gpu.get("id"):
        return uuid(identity if isinstance(identity, str) else "", f"{place}.id: ")
    return RawDeviceId("minor", str(whole(gpu.get("minor"), f"{place}.minor: ")))


def _share(resources: dict[str, Any], place: str) -> float | None:
    """Return the share of the GPU; None if no resource defines a valid share."""
    for resource in _SHARES:
        if (amount := resources.get(resource)) is not None:
            written = str(amount) if isinstance(amount, str | int | float) else ""
            quantity = _QUANTITY.fullmatch(written)
            if quantity is None:
                raise_malformed(f"{place}.{resource}: ", "a quantity", amount)
            share = float(Fraction(quantity[1]) * _UNITS[quantity[2]] / 100)
            if 0 < share <= 1:
                return share
    return None
