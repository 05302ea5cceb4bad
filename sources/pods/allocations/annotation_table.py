"""Select the reader of each annotation, and turn the result into claims."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from pipeline.allocations import koordinator
from pipeline.allocations.annotation_values import AllocatedDevices, MalformedError
from pipeline.allocations.own_annotations import own_annotations
from pipeline.base.safe_text import shortened
from pipeline.model import Claim, Evidence, Origin, PartialRef
from sources.pods.allocations import configured_annotations, gpushare, hami, kai, volcano
from sources.pods.allocations.pod_facts import AnnotationProblem, PodFacts
from sources.pods.allocations.resource_requests import requested
from sources.pods.options import Options, Scheduler

_Readers = dict[str, Callable[[PodFacts], list[AllocatedDevices]]]
_READERS: Final[dict[Scheduler, _Readers]] = {
    "koordinator": {
        koordinator.ANNOTATION: lambda facts: koordinator.read(
            facts.annotations[koordinator.ANNOTATION]
        ),
    },
    "hami": {hami.ANNOTATION: hami.read, hami.OLD: hami.read_old},
    "volcano": {volcano.VGPU: volcano.read_vgpu, volcano.INDEX: volcano.read_index},
    "gpushare": {
        gpushare.ALLOCATION: gpushare.read_allocation,
        gpushare.INDEX: gpushare.read_index,
    },
}
_OF_SCHEDULERS: Final = frozenset(key for readers in _READERS.values() for key in readers)


_NODES: Final = {
    hami.ANNOTATION: "hami.io/vgpu-node",
    hami.OLD: "4pd.io/vgpu-node",
    volcano.VGPU: "volcano.sh/vgpu-node",
    volcano.INDEX: "volcano.sh/vgpu-node",
}
"""The annotation that names the node for which the scheduler decided, by allocation annotation."""

_SCHEDULERS: Final[dict[str, Scheduler]] = {
    annotation: scheduler for scheduler, readers in _READERS.items() for annotation in readers
}


def allocations(
    facts: PodFacts,
    annotations: Iterable[str] = (),
    resources: Mapping[Scheduler, Collection[str]] | None = None,
) -> tuple[tuple[Claim, ...], tuple[AnnotationProblem, ...]]:
    """Return the claims from a pod's annotations, and the problems of these annotations.

    Annotations that podgpu wrote itself are ignored. podgpu writes no scheduler's annotations, so
    its mark cannot hide one of those. A scheduler's annotation is used only for a pod that requests
    a resource of that scheduler, up to the number and share that it requests, and only if it was
    written for the pod's node.

    Args:
        facts: what is known of the pod.
        annotations: further annotations to read, from the configuration.
        resources: resources of the schedulers whose annotations are read.
    """
    resources = Options().resources if resources is None else resources
    readers: _Readers = {}
    for scheduler, of_scheduler in _READERS.items():
        if scheduler in resources:
            readers |= of_scheduler
    ours = own_annotations(facts.annotations).keys() - _OF_SCHEDULERS
    claims: list[Claim] = []
    complaints: list[AnnotationProblem] = []
    for annotation in dict.fromkeys((*readers, *annotations)):
        if annotation not in facts.annotations or annotation in ours:
            continue
        vouched = annotation not in readers
        try:
            if vouched:
                held = _read(facts, annotation, readers)
            else:
                scheduler_resources = resources[_SCHEDULERS[annotation]]
                _check_node(facts, annotation)
                held = _read(replace(facts, resources=scheduler_resources), annotation, readers)
                held = _limited_to_request(facts, held, scheduler_resources)
        except MalformedError as error:
            complaints.append(AnnotationProblem(annotation, str(error)))
        else:
            claims += _claims(facts, annotation, held, vouched=vouched)
    return tuple(claims), tuple(complaints)


def reserved(facts: PodFacts) -> tuple[tuple[Claim, ...], tuple[AnnotationProblem, ...]]:
    """Return the claim of a reservation pod, and the problems of its annotation."""
    return _read_single(facts, kai.RESERVED, kai.read_reservation)


def shared(facts: PodFacts) -> tuple[tuple[Claim, ...], tuple[AnnotationProblem, ...]]:
    """Return the claim of a pod on reserved devices, and the problems of its annotations."""
    return _read_single(facts, kai.GROUP, kai.read_shared)


def _read_single(
    facts: PodFacts, key: str, reader: Callable[[PodFacts], list[AllocatedDevices]]
) -> tuple[tuple[Claim, ...], tuple[AnnotationProblem, ...]]:
    try:
        return tuple(_claims(facts, key, reader(facts), vouched=False)), ()
    except MalformedError as error:
        return (), (AnnotationProblem(key, str(error)),)


def _read(facts: PodFacts, annotation: str, readers: _Readers) -> list[AllocatedDevices]:
    if not isinstance(facts.annotations[annotation], str):
        raise MalformedError("is not text")
    reader = readers.get(annotation)
    return configured_annotations.read(facts, annotation) if reader is None else reader(facts)


def _check_node(facts: PodFacts, annotation: str) -> None:
    key = _NODES.get(annotation, "")
    node = facts.annotations.get(key)
    if node and facts.node and node != facts.node:
        raise MalformedError(
            f'is for node "{shortened(str(node))}" ({key}), but the pod is on "{facts.node}"'
        )


def _limited_to_request(
    facts: PodFacts, held: list[AllocatedDevices], resources: Collection[str]
) -> list[AllocatedDevices]:
    """Return what is held, with each share limited to the requested one.

    Raises:
        MalformedError: a container that holds a device requests none, or fewer.
    """
    found: list[AllocatedDevices] = []
    for container in dict.fromkeys(one.container for one in held):
        of = f"container {container}" if container else "the pod"
        request = requested(facts, resources, container)
        mine = [one for one in held if one.container == container]
        named = {device for one in mine for device in one.devices}
        if request is None:
            raise MalformedError(f"{of} requests none of {', '.join(resources)}")
        if len(named) > request.number:
            raise MalformedError(f"names {len(named)} GPUs, but {of} requests {request.number}")
        most = request.share
        found += [
            one
            if most is None or one.share is None or one.share <= most
            else replace(one, share=most)
            for one in mine
        ]
    return found


def _claims(
    facts: PodFacts, annotation: str, held: Iterable[AllocatedDevices], *, vouched: bool
) -> Iterator[Claim]:
    ids = {container.name: container.container_id for container in facts.containers}
    for found in held:
        yield Claim(
            PartialRef(
                facts.namespace,
                facts.name,
                found.container,
                facts.uid,
                ids.get(found.container, ""),
            ),
            found.devices,
            found.share,
            None,
            Origin(Evidence.SCHEDULER_ANNOTATION, annotation),
            sys.intern(found.resource),
            vouched=vouched,
        )
