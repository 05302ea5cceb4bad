"""Start of holdings: since when a container has held a device."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from pipeline.join.arbitration import DeviceHolder
from pipeline.model import Holder, Instant, PartialRef


class HoldStart(NamedTuple):
    """When a container began to hold a device; `is_observed`: as podgpu saw it, not as reported."""

    at: Instant
    is_observed: bool


HoldStarts: TypeAlias = dict[PartialRef, HoldStart]
"""Starts of the holdings of one device, by container."""


def make_holder(
    holding: DeviceHolder, at: Instant, previous: Mapping[PartialRef, HoldStart], starts: HoldStarts
) -> Holder:
    """Return a holder, and add its start to `starts`.

    A start that a source reported once stays known when the source no longer reports it.
    """
    subject = holding.subject
    if subject.container_id:
        # A restarted container continues its holding.
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
