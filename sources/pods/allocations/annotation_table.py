"""Select the reader of each annotation, and convert the devices that it returns to claims."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pipeline.allocations import koordinator
from pipeline.allocations.annotation_values import (
    AllocatedDevices,
    MalformedError,
    as_object,
    group_by_share,
    parsed,
    raise_malformed,
    uuid,
)
from pipeline.allocations.own_annotations import own_annotations
from pipeline.base.safe_text import shortened
from pipeline.model import Claim, Evidence, Origin, PartialRef
from sources.pods.allocations import gpushare, hami, kai, volcano
from sources.pods.allocations.pod_facts import PodFacts, requested
from sources.pods.options import Options, Scheduler


@dataclass(frozen=True, slots=True)
class _Reader:
    """How the annotation of a scheduler is read.

    Attributes:
        scheduler: the scheduler that writes the annotation.
        read: returns the devices of a pod that has the annotation; its value must be a text.
        node: key of another annotation: the node for which the scheduler decided; empty if none.
    """

    scheduler: Scheduler
    read: Callable[[PodFacts], list[AllocatedDevices]]
    node: str = ""


_READERS: Final = {
    koordinator.ANNOTATION: _Reader(
        "koordinator", lambda facts: koordinator.read(facts.annotations[koordinator.ANNOTATION])
    ),
    hami.ANNOTATION: _Reader("hami", hami.read, "hami.io/vgpu-node"),
    hami.OLD: _Reader("hami", hami.read_old, "4pd.io/vgpu-node"),
    volcano.VGPU: _Reader("volcano", volcano.read_vgpu, "volcano.sh/vgpu-node"),
    volcano.INDEX: _Reader("volcano", volcano.read_index, "volcano.sh/vgpu-node"),
    gpushare.ALLOCATION: _Reader("gpushare", gpushare.read_allocation),
    gpushare.INDEX: _Reader("gpushare", gpushare.read_index),
}


def allocations(
    facts: PodFacts,
    annotations: Iterable[str] = (),
    resources: Mapping[Scheduler, Collection[str]] | None = None,
) -> tuple[tuple[Claim, ...], dict[str, str]]:
    """Return the claims from a pod's annotations, and the problem of each unreadable annotation.

    Annotations that podgpu wrote itself are ignored, except those of schedulers, which podgpu never
    writes. A scheduler's annotation is used only for a pod that requests a resource of that
    scheduler, only for as many GPUs as the pod requests, and only if the scheduler wrote it for the
    pod's node. Shares are limited to the requested share.

    Args:
        facts: what is known of the pod.
        annotations: keys of further annotations to read, from the configuration.
        resources: resources of the schedulers whose annotations are read; None for the defaults.
    """
    resources = Options().resources if resources is None else resources
    readers = {key: each for key, each in _READERS.items() if each.scheduler in resources}
    ours = own_annotations(facts.annotations).keys() - _READERS.keys()
    claims: list[Claim] = []
    problems: dict[str, str] = {}
    for annotation in dict.fromkeys((*readers, *annotations)):
        if annotation not in facts.annotations or annotation in ours:
            continue
        if not isinstance(facts.annotations[annotation], str):
            problems[annotation] = "is not text"
            continue
        reader = readers.get(annotation)
        try:
            if reader is None:
                held = _read_configured(facts, annotation)
            else:
                held = _read_scheduled(facts, reader, resources[reader.scheduler])
        except MalformedError as error:
            problems[annotation] = str(error)
        else:
            claims += _claims(facts, annotation, held, vouched=reader is None)
    return tuple(claims), problems


def kai_allocation(facts: PodFacts, *, reserving: bool) -> tuple[tuple[Claim, ...], dict[str, str]]:
    """Return the claim of a pod in a group of KAI, and the problem of its annotation if any.

    Args:
        facts: what is known of the pod.
        reserving: True for the group's reservation pod; False for a pod that shares its GPU.
    """
    key, read = (kai.RESERVED, kai.read_reservation) if reserving else (kai.GROUP, kai.read_shared)
    try:
        return tuple(_claims(facts, key, read(facts), vouched=False)), {}
    except MalformedError as error:
        return (), {key: str(error)}


def _read_scheduled(
    facts: PodFacts, reader: _Reader, resources: Collection[str]
) -> list[AllocatedDevices]:
    node = facts.annotations.get(reader.node)
    if node and facts.node and node != facts.node:
        raise MalformedError(
            f'is for node "{shortened(str(node))}" ({reader.node}), but the pod is on '
            f'"{facts.node}"'
        )
    return _limited_to_request(facts, reader.read(replace(facts, resources=resources)), resources)


def _read_configured(facts: PodFacts, annotation: str) -> list[AllocatedDevices]:
    """Return the devices in an annotation of the form `{"nvidia.com/gpu": "GPU-...,GPU-..."}`.

    A value may also be a list of UUIDs.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    allocation = as_object(parsed(facts.annotations[annotation]))
    found: list[AllocatedDevices] = []
    for resource, ids in allocation.items():
        place = f"{resource}: "
        names = ids.split(",") if isinstance(ids, str) else ids
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise_malformed(place, "UUIDs separated by commas, or a list of UUIDs", ids)
        devices = [(uuid(name.strip(), place), None) for name in names if name.strip()]
        found += [replace(held, resource=resource) for held in group_by_share(devices)]
    return found


def _limited_to_request(
    facts: PodFacts, held: list[AllocatedDevices], resources: Collection[str]
) -> list[AllocatedDevices]:
    """Return what containers hold, with each share limited to the requested share.

    Raises:
        MalformedError: a container that holds devices requests none, or fewer devices.
    """
    found: list[AllocatedDevices] = []
    for container in dict.fromkeys(one.container for one in held):
        of = f"container {container}" if container else "the pod"
        request = requested(facts, resources, container)
        mine = [one for one in held if one.container == container]
        number = len({device for one in mine for device in one.devices})
        if request is None:
            raise MalformedError(f"{of} requests none of {', '.join(resources)}")
        if number > request.number:
            raise MalformedError(f"names {number} GPUs, but {of} requests {request.number}")
        for one in mine:
            shares = [share for share in (one.share, request.share) if share is not None]
            share = min(shares) if one.share is not None else None
            found.append(replace(one, share=share))
    return found


def _claims(
    facts: PodFacts, annotation: str, held: Iterable[AllocatedDevices], *, vouched: bool
) -> Iterator[Claim]:
    ids = {container.name: container.container_id for container in facts.containers}
    for found in held:
        name = found.container
        yield Claim(
            PartialRef(facts.namespace, facts.name, name, facts.uid, ids.get(name, "")),
            found.devices,
            found.share,
            None,
            Origin(Evidence.SCHEDULER_ANNOTATION, annotation),
            sys.intern(found.resource),
            vouched=vouched,
        )
