"""Reads annotations from the configuration: JSON with resource names and device UUIDs."""

from dataclasses import replace

from pipeline.allocations.annotation_values import (
    AllocatedDevices,
    group_by_share,
    parsed,
    raise_malformed,
    uuid,
)
from sources.pods.allocations.pod_facts import PodFacts


def read(facts: PodFacts, annotation: str) -> list[AllocatedDevices]:
    """Return the devices of a pod: `{"nvidia.com/gpu": "GPU-...,GPU-..."}`, or a list of UUIDs.

    Raises:
        MalformedError: the annotation cannot be read.
    """
    allocation = parsed(facts.annotations[annotation])
    if not isinstance(allocation, dict):
        raise_malformed("", "an object", allocation)
    found: list[AllocatedDevices] = []
    for resource, ids in allocation.items():
        place = f"{resource}: "
        names = ids.split(",") if isinstance(ids, str) else ids
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise_malformed(place, "UUIDs separated by commas, or a list of UUIDs", ids)
        devices = [(uuid(name.strip(), place), None) for name in names if name.strip()]
        found += [replace(held, resource=resource) for held in group_by_share(devices)]
    return found
