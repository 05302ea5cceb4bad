"""Since when a container has held a device."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from pipeline.join.arbitration import DeviceHolder
from pipeline.model import Holder, Instant, PartialRef


class HoldStart(NamedTuple):
    """When a container began to hold a device, and whether that is only when it was first seen."""

    at: Instant
    is_observed: bool


HoldStarts: TypeAlias = dict[PartialRef, HoldStart]
"""By container, when it began to hold one device."""


def make_holder(
    holding: DeviceHolder, at: Instant, previous: Mapping[PartialRef, HoldStart], starts: HoldStarts
) -> Holder:
    """Return a holder, and note since when it has been one.

    What a source has told once stays known when it doesn't tell it any more.
    """
    subject = holding.subject
    if subject.container_id:
        # A container that is made anew goes on holding what it held.
        subject = replace(subject, container_id="")
    start = previous.get(subject, HoldStart(at, is_observed=True))
    if holding.since is not None:
        start = HoldStart(holding.since, is_observed=False)
    starts[subject] = start
    return Holder(
        holding.subject,
        holding.share,
        start.at,
        holding.source,
        holding.evidence,
        holding.pod,
        holding.replicas,
        start.is_observed,
    )
