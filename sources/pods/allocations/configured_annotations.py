"""Annotations that the configuration names: JSON, the name of a resource and the uuids it gave."""

from dataclasses import replace

from pipeline.allocations.annotation_values import Held, gathered, parsed, uuid, wrong
from sources.pods.allocations.pod_facts import Facts


def read(facts: Facts, annotation: str) -> list[Held]:
    """Return what a pod was given: `{"nvidia.com/gpu": "GPU-...,GPU-..."}`, or a list of uuids.

    Raises:
        MalformedError: the annotation can't be read.
    """
    told = parsed(facts.annotations[annotation])
    if not isinstance(told, dict):
        wrong("", "an object", told)
    found: list[Held] = []
    for resource, ids in told.items():
        place = f"{resource}: "
        names = ids.split(",") if isinstance(ids, str) else ids
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            wrong(place, "uuids with commas, or a list of them", ids)
        devices = [(uuid(name.strip(), place), None) for name in names if name.strip()]
        found += [replace(held, resource=resource) for held in gathered(devices)]
    return found
