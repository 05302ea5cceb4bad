"""HAMi: a row for each container, and MIG instances in an annotation beside it."""

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
"""As releases before 2.3.8 write it."""
_OLD_PHASE: Final = "4pd.io/bind-phase"
_PHASE: Final = "hami.io/bind-phase"
_MIG: Final = "hami.io/vgpu-mig-allocations"


def read(facts: PodFacts) -> list[AllocatedDevices]:
    """Return what a pod's containers were given, once the device plugin has agreed.

    Releases from 2.9 on write a row for init containers too, those before for the others alone; the
    number of rows tells which. MIG instances are made by the plugin: until all are, what a
    container holds is not known.

    Raises:
        MalformedError: one of the annotations can't be read.
    """
    if facts.annotations.get(_PHASE, "success") != "success":
        return []
    found = rows(facts.annotations[ANNOTATION], facts, init=True)
    instances = _instances(facts.annotations.get(_MIG))
    if None in instances.values():
        return []
    return list(held(found, instances.get))


def read_old(facts: PodFacts) -> list[AllocatedDevices]:
    """Return what old releases, which know no init containers, gave to a pod's containers.

    Raises:
        MalformedError: the annotation can't be read.
    """
    if ANNOTATION in facts.annotations or facts.annotations.get(_OLD_PHASE, "success") != "success":
        return []
    return list(held(rows(facts.annotations[OLD], facts), lambda _: None))


def _instances(value: object) -> dict[Place, RawDeviceId | None]:
    """Return MIG instances by their place, None for one that isn't made yet."""
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
