"""Reads annotations of HAMi: a row for each container, and MIG instances in another annotation.

Each device of a container is `UUID,TYPE,MEMORY,CORES` and a colon. The devices of one container are
a row. Semicolons are between rows or after each row. A container without devices has an empty row,
the placeholder `,,0,0:`, or no row, depending on the release. volcano uses this format, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pipeline.allocations.annotation_values import (
    AllocatedDevices,
    MalformedError,
    as_object,
    group_by_share,
    parsed,
    percent,
    raise_malformed,
    uuid,
    whole,
)
from pipeline.model import RawDeviceId
from sources.pods.allocations.pod_facts import PodFacts

ANNOTATION: Final = "hami.io/vgpu-devices-allocated"
OLD: Final = "4pd.io/vgpu-ids-new"
"""The annotation of releases before 2.3.8, instead of `ANNOTATION`."""
_OLD_PHASE: Final = "4pd.io/bind-phase"
_PHASE: Final = "hami.io/bind-phase"
_MIG: Final = "hami.io/vgpu-mig-allocations"

Place = tuple[int, int]
"""Index of a row, and index of a device in the row."""

Instances = Mapping[Place, RawDeviceId | None]
"""The MIG instance at each place; None if the device plugin has not created the instance yet."""

Rows = list[tuple[str, str]]
"""Rows, each with the name of its container; the name is empty if a row belongs to no container."""


def read(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the devices of a pod's containers.

    Nothing is returned until the device plugin has confirmed the allocation, and has created all
    MIG instances in it. Releases from 2.9 on write rows for init containers too; the number of rows
    shows whether there are such rows.

    Raises:
        MalformedError: one of the annotations cannot be read.
    """
    if facts.annotations.get(_PHASE, "success") != "success":
        return []
    found = rows(facts.annotations[ANNOTATION], facts, init=True)
    instances = _instances(facts.annotations.get(_MIG))
    if None in instances.values():
        return []
    return list(held(found, instances))


def read_old(facts: PodFacts) -> list[AllocatedDevices]:
    """Return the devices from the annotation of an old release, which has no init containers.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    if ANNOTATION in facts.annotations or facts.annotations.get(_OLD_PHASE, "success") != "success":
        return []
    return list(held(rows(facts.annotations[OLD], facts)))


def _instances(value: object) -> Instances:
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
    fields = as_object(entry, f"[{number}]: ")
    container, device = (
        whole(fields.get(key), f"[{number}].{key}: ") for key in ("containerIndex", "deviceIndex")
    )
    name, place = fields.get("migUUID"), f"[{number}].migUUID: "
    found = uuid(name if isinstance(name, str) else "", place) if name else None
    return (container, device), found


def rows(
    value: str, facts: PodFacts, *, init: bool = False, separators_between: bool = False
) -> Rows:
    """Return the rows with their containers, according to the pod's spec.

    The number of rows shows which containers have a row: all containers, those that are not init
    containers, those that request the scheduler's resource, or, for HAMi, those of `_shifted`.
    Several of these sets may have that number. The first one is used for which no row names a
    device for a container that requests none.

    Args:
        value: the text of the annotation.
        facts: what is known of the pod.
        init: whether the scheduler may write rows for init containers.
        separators_between: True if semicolons are between rows; False if one follows each row.

    Raises:
        MalformedError: the text has another number of rows, or names a device for a container that
            requests none.
    """
    parts = value.split(";")
    ended = parts[:-1] if not parts[-1].strip() else parts
    every, lasting = facts.names(init=init), facts.names()
    candidates = [every, lasting, [name for name in every if facts.requests_resource(name)]]
    if not separators_between:
        candidates.append(_shifted(lasting, facts))
    contradiction = ""
    for found in (parts, ended) if separators_between else (ended,):
        for names in candidates:
            if len(names) != len(found):
                continue
            wrong = _contradicting(found, names, facts)
            if wrong is None:
                return list(zip(found, names, strict=True))
            contradiction = contradiction or (
                f"row {wrong} names a device for container {names[wrong]}, which requests none"
            )
        if contradiction:
            raise MalformedError(contradiction)
    expected = " or ".join(str(count) for count in dict.fromkeys(map(len, candidates)))
    raise MalformedError(f"expected {expected} containers, found {len(ended)}")


def _shifted(names: Iterable[str], facts: PodFacts) -> list[str]:
    """Return the containers of rows as HAMi up to 2.5 writes them; an empty name for no container.

    The first containers that request nothing have no row. The next container that requests nothing
    has the row whose index is the container's own, and so do the containers after it. The rows in
    between are empty and belong to no container.
    """
    rows: list[str] = []
    for number, name in enumerate(names):
        if facts.requests_resource(name):
            rows.append(name)
        elif rows:
            rows += [""] * (number - len(rows)) + [name]
    return rows


def _contradicting(parts: Sequence[str], names: Sequence[str], facts: PodFacts) -> int | None:
    """Return the index of the first row that names a device for a container that requests none."""
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        names_device = any(text.strip() and not _empty(text) for text in part.split(":"))
        if names_device and not facts.requests_resource(name):
            return number
    return None


def held(found: Rows, instances: Instances = MappingProxyType({})) -> Iterator[AllocatedDevices]:
    """Yield the devices that containers hold.

    Args:
        found: the rows.
        instances: MIG instances by place; each is held instead of the device in the text.

    Raises:
        MalformedError: a row cannot be read.
    """
    for number, (part, name) in enumerate(found):
        if name:
            yield from group_by_share(_devices(part, number, instances), name)


def _devices(
    part: str, number: int, instances: Instances
) -> Iterator[tuple[RawDeviceId, float | None]]:
    texts = [text for text in part.split(":") if text.strip()]
    for index, text in enumerate(texts):
        if _empty(text):
            continue
        place = f"container {number}, device {index}: "
        fields = [field.strip() for field in text.split(",")]
        if len(fields) < 4:
            raise MalformedError(f"{place}expected UUID,TYPE,MEMORY,CORES")
        # Some releases add the slot of a MIG layout to the GPU's UUID.
        gpu = uuid(fields[0].partition("[")[0], place)
        whole(fields[2], f"{place}memory: ")
        # 0 cores means that there is no limit.
        share = percent(whole(fields[3], f"{place}cores: "))
        yield instances.get((number, index)) or gpu, share


def _empty(text: str) -> bool:
    """Return whether a text is the placeholder of a container without devices."""
    fields = [field.strip() for field in text.split(",")]
    return len(fields) >= 4 and fields[0] == "" and set(fields) <= {"", "0"}
