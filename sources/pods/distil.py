"""From a pod as the API server sends it, some ten kilobytes, to what podgpu needs of it."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.kube.shape import items, table, text
from pipeline.model import Claim, Pod, PodInfo
from sources.pods.allocations import Complaint, Facts, allocations
from sources.pods.containers import containers
from sources.pods.moments import Moments
from sources.pods.options import Options
from sources.pods.owners import owner
from sources.pods.passing import Passing
from sources.pods.resourceclaims import names

_MIRROR: Final = "kubernetes.io/config.mirror"
"""What the kubelet writes on the mirror of a static pod, and nobody may add to a pod later: the uid
by which it knows the pod. `config.hash` alone is no sign of a mirror."""

_NATIVE: Final = "kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Left:
    """What was left out of a pod, or not understood.

    Attributes:
        uid: of the pod.
        pod: `namespace/name`, for people.
        beyond: labels and annotations that were too many or too long.
        complaints: about annotations that say which devices it holds.
    """

    uid: str
    pod: str
    beyond: int
    complaints: tuple[Complaint, ...]


class Distiller:
    """Makes pods out of what the API server sends.

    Args:
        options: what is let through, and which annotations are read.
        moments: for timestamps.
        report: takes what was left out of a pod.
    """

    def __init__(self, options: Options, moments: Moments, report: Callable[[Left], None]) -> None:
        self._labels = Passing(options.labels, options.max_labels, options.label_patterns)
        self._annotations = Passing(options.annotations, options.max_labels)
        self._configured = options.device_annotations
        self._schedulers = options.schedulers
        self._moments = moments
        self._report = report

    def __call__(self, raw: Mapping[str, Any]) -> Pod | None:
        """Return the pod; None if it has no identity."""
        metadata, spec = table(raw.get("metadata")), table(raw.get("spec"))
        status = table(raw.get("status"))
        uid, name = text(metadata.get("uid")), text(metadata.get("name"))
        namespace = sys.intern(text(metadata.get("namespace")))
        if not (uid and name and namespace):
            return None
        phase = sys.intern(text(status.get("phase")))
        ended = phase in {"Succeeded", "Failed"}
        found = tuple(
            containers(
                spec,
                status,
                over=ended,
                leaving="deletionTimestamp" in metadata,
                moments=self._moments,
            )
        )
        annotations = table(metadata.get("annotations"))
        claims: tuple[Claim, ...] = ()
        complaints: tuple[Complaint, ...] = ()
        # A pod that is restored or copied may bring the annotations of another one with it.
        if wants := _wants_devices(spec):
            facts = Facts(namespace, name, uid, annotations, found)
            claims, complaints = allocations(facts, self._configured, self._schedulers)
        labels, beyond = self._labels.pairs(table(metadata.get("labels")))
        shown, further = self._annotations.pairs(annotations)
        if complaints or beyond or further:
            self._report(Left(uid, f"{namespace}/{name}", beyond + further, complaints))
        kind, workload = owner(metadata)
        return Pod(
            PodInfo(
                uid,
                namespace,
                name,
                phase,
                kind,
                workload,
                sys.intern(text(status.get("qosClass"))),
                labels,
                shown,
            ),
            self._moments.parse(status.get("startTime")),
            ended,
            text(annotations.get(_MIRROR)),
            found,
            claims,
            wants,
            names(spec, status),
        )


def _wants_devices(spec: Mapping[str, Any]) -> bool:
    if items(spec.get("resourceClaims")):
        return True
    every = items(spec.get("initContainers")) + items(spec.get("containers"))
    return any(_extended(table(container.get("resources"))) for container in every)


def _extended(resources: Mapping[str, Any]) -> bool:
    asked: Iterable[Mapping[str, Any]] = (
        table(resources.get("limits")),
        table(resources.get("requests")),
    )
    return any(
        "/" in name and _NATIVE not in name and amount not in (0, "0")
        for amounts in asked
        for name, amount in amounts.items()
    )
