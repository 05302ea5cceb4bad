"""Which annotation is read by whom, and the claims that come of it."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from pipeline.allocations import koordinator
from pipeline.allocations.reading import Held, MalformedError
from pipeline.allocations.wrote import own
from pipeline.model import Claim, Evidence, Origin, PartialRef
from sources.pods.allocations import configured, gpushare, hami, kai, volcano
from sources.pods.allocations.facts import Complaint, Facts
from sources.pods.options import Scheduler

_Readers = dict[str, Callable[[Facts], list[Held]]]
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


def allocations(
    facts: Facts,
    annotations: Iterable[str] = (),
    schedulers: Collection[Scheduler] = tuple(_READERS),
) -> tuple[tuple[Claim, ...], tuple[Complaint, ...]]:
    """Return what a pod's annotations say that it holds, and what is wrong with them.

    What podgpu wrote itself is no word of anybody's, and passed over. It writes none of the
    schedulers' annotations, so that no mark hides what one of them said.

    Args:
        facts: what is known of the pod.
        annotations: further ones to read, by the configuration.
        schedulers: those whose annotations are read.
    """
    readers: _Readers = {}
    for scheduler, its_own in _READERS.items():
        if scheduler in schedulers:
            readers |= its_own
    ours = own(facts.annotations).keys() - _OF_SCHEDULERS
    claims: list[Claim] = []
    complaints: list[Complaint] = []
    for annotation in dict.fromkeys((*readers, *annotations)):
        if annotation not in facts.annotations or annotation in ours:
            continue
        try:
            held = _read(facts, annotation, readers)
        except MalformedError as error:
            complaints.append(Complaint(annotation, str(error)))
        else:
            claims += _claims(facts, annotation, held)
    return tuple(claims), tuple(complaints)


def reserved(facts: Facts) -> tuple[tuple[Claim, ...], tuple[Complaint, ...]]:
    """Return what a reservation pod says that it got, and what is wrong with that."""
    return _of(facts, kai.RESERVED, kai.read_reservation)


def shared(facts: Facts) -> tuple[tuple[Claim, ...], tuple[Complaint, ...]]:
    """Return which reserved devices a pod shares, and what is wrong with what it says of that."""
    return _of(facts, kai.GROUP, kai.read_shared)


def _of(
    facts: Facts, key: str, reader: Callable[[Facts], list[Held]]
) -> tuple[tuple[Claim, ...], tuple[Complaint, ...]]:
    try:
        return tuple(_claims(facts, key, reader(facts))), ()
    except MalformedError as error:
        return (), (Complaint(key, str(error)),)


def _read(facts: Facts, annotation: str, readers: _Readers) -> list[Held]:
    if not isinstance(facts.annotations[annotation], str):
        raise MalformedError("is no text")
    reader = readers.get(annotation)
    return configured.read(facts, annotation) if reader is None else reader(facts)


def _claims(facts: Facts, annotation: str, held: Iterable[Held]) -> Iterator[Claim]:
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
        )
