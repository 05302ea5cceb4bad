"""Annotations that the configuration names: JSON, the name of a resource and the uuids it gave."""

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
    """Return what a pod was given: `{"nvidia.com/gpu": "GPU-...,GPU-..."}`, or a list of uuids.

    Raises:
        MalformedError: the annotation can't be read.
    """
    told = parsed(facts.annotations[annotation])
    if not isinstance(told, dict):
        raise_malformed("", "an object", told)
    found: list[AllocatedDevices] = []
    for resource, ids in told.items():
        place = f"{resource}: "
        names = ids.split(",") if isinstance(ids, str) else ids
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise_malformed(place, "uuids with commas, or a list of them", ids)
        devices = [(uuid(name.strip(), place), None) for name in names if name.strip()]
        found += [replace(held, resource=resource) for held in group_by_share(devices)]
    return found
