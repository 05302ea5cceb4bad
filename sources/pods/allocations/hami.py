"""HAMi: reads a row for each container, and MIG instances from another annotation."""

from typing import Final

from pipeline.allocations.annotation_values import (
    AllocatedDevices,
    MalformedError,
    parsed,
    raise_malformed,
    uuid,
    whole,
)
from pipeline.model import RawDeviceId
from sources.pods.allocations.hami_format import Place, held, rows
from sources.pods.allocations.pod_facts import PodFacts

ANNOTATION: Final = "hami.io/vgpu-devices-allocated"
OLD: Final = "4pd.io/vgpu-ids-new"
"""The annotation of releases before 2.3.8."""
_OLD_PHASE: Final = "4pd.io/bind-phase"
_PHASE: Final = "hami.io/bind-phase"
_MIG: Final = "hami.io/vgpu-mig-allocations"


def read(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the devices of a pod's containers, once the device plugin has confirmed them.

    Releases from 2.9 on write rows for init containers too, older ones only for the others; the
    number of rows shows which. The device plugin creates MIG instances: until all of them exist,
    nothing is known about the pod.

    Raises:
        MalformedError: one of the annotations cannot be read.
    """
    if facts.annotations.get(_PHASE, "success") != "success":
        return []
    found = rows(facts.annotations[ANNOTATION], facts, init=True)
    instances = _instances(facts.annotations.get(_MIG))
    if None in instances.values():
        return []
    return list(held(found, instances.get))


def read_old(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the devices from an old release's annotation, which omits init containers.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    if ANNOTATION in facts.annotations or facts.annotations.get(_OLD_PHASE, "success") != "success":
        return []
    return list(held(rows(facts.annotations[OLD], facts), lambda _: None))


def _instances(value: object) -> dict[Place, RawDeviceId | None]:
    """Return the MIG instance of each place; None for one that does not exist yet."""
    if value is None:
        return {}
    try:
        entries = parsed(value if isinstance(value, str) else "")
        if not isinstance(entries, list):
            raise_malformed("", "a list", entries)
        return dict(_instance(number, entry) for number, entry in enumerate(entries))
    except MalformedError as error:
        raise MalformedError(f"{_MIG}: {error}") from error


def _instance(number: int, entry: object) -> tuple[Place, RawDeviceId | None]:
    if not isinstance(entry, dict):
        raise_malformed(f"[{number}]: ", "an object", entry)
    container, device = (
        whole(entry.get(key), f"[{number}].{key}: ") for key in ("containerIndex", "deviceIndex")
    )
    name = entry.get("migUUID")
    if not name:
        return (container, device), None
    return (container, device), uuid(name if isinstance(name, str) else "", f"[{number}].migUUID: ")
