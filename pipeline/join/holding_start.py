"""Since when a container has held a device."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from pipeline.join.arbitration import Holding
from pipeline.model import Holder, Instant, PartialRef


class Began(NamedTuple):
    """When a container began to hold a device, and whether that is only when it was first seen."""

    at: Instant
    seen: bool


Since: TypeAlias = dict[PartialRef, Began]
"""By container, when it began to hold one device."""


def holder_of(
    holding: Holding, at: Instant, began: Mapping[PartialRef, Began], since: Since
) -> Holder:
    """Return a holder, and note since when it has been one.

    What a source has told once stays known when it doesn't tell it any more.
    """
    subject = holding.subject
    if subject.container_id:
        # A container that is made anew goes on holding what it held.
        subject = replace(subject, container_id="")
    start = began.get(subject, Began(at, seen=True))
    if holding.since is not None:
        start = Began(holding.since, seen=False)
    since[subject] = start
    return Holder(
        holding.subject,
        holding.share,
        start.at,
        holding.source,
        holding.evidence,
        holding.pod,
        holding.replicas,
        start.seen,
    )
