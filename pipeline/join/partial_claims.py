"""What is told of pods with a part missing: a name without its uid, or a uid without its name."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.join.claim_resolution import Word, find_ids
from pipeline.join.device_index import DeviceIndex
from pipeline.model import Evidence

Place: TypeAlias = tuple[str, str]
"""Namespace and name of a pod."""

Slot: TypeAlias = tuple[str, str, str]
"""Source, container and resource of a claim."""

Ids: TypeAlias = frozenset[str]
"""The ids that the kubelet asked a device plugin for."""


@dataclass(slots=True)
class Round:
    """What is told now.

    Attributes:
        listed: by name, what it is listed with.
        kept: by uid, the words that have no name.
        stated: names and uids that were stated at once, by name; each with its beginning.
    """

    listed: dict[Place, dict[Slot, frozenset[Ids]]] = field(default_factory=dict)
    kept: dict[str, list[Word]] = field(default_factory=dict)
    stated: dict[Place, dict[str, int]] = field(default_factory=dict)


def sort(words: Iterable[Word]) -> Round:
    """Find out what is told with a part missing."""
    told = Round()
    for word in words:
        ref = word.claim.subject
        if ref.pod and not ref.uid:
            slots = told.listed.setdefault((ref.namespace, ref.pod), {})
            slot = slot_of(word)
            # What others than the kubelet list has a name, and no ids that the kubelet gave out.
            ids = ids_of(word) if word.evidence >= Evidence.PLUGIN_ANSWER else frozenset[str]()
            slots[slot] = slots.get(slot, frozenset()) | {ids}
        elif ref.uid and not word.subject.pod:
            told.kept.setdefault(ref.uid, []).append(word)
    return told


def unlisted(word: Word, listed: set[tuple[str, str]], devices: DeviceIndex) -> Word | None:
    """Return a word without the ids that the kubelet lists under a name; None if nothing is left.

    Args:
        word: one that nobody has a name for.
        listed: resources and ids that are listed under names.
        devices: the devices of the node.
    """
    if word.evidence < Evidence.PLUGIN_ANSWER or not word.claim.resource:
        return word
    ids = word.claim.asked or word.claim.devices
    left = tuple([raw for raw in ids if (word.claim.resource, raw.text) not in listed])
    if len(left) == len(ids):
        return word
    if word.claim.asked or not left:
        return None
    if not word.found:
        return word
    found, _ = find_ids(left, devices)
    return word._replace(found=found) if found else None


def place_of(word: Word) -> Place:
    """Return the name of a word's pod."""
    return (word.subject.namespace, word.subject.pod)


def slot_of(word: Word) -> Slot:
    """Return what a word's ids are told of."""
    return (word.source, word.subject.container, word.claim.resource)


def ids_of(word: Word) -> Ids:
    """Return the ids that were asked for."""
    return frozenset([raw.text for raw in word.claim.asked or word.claim.devices])
