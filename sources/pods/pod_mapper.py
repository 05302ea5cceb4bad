"""Map a pod of the API server, which has some ten kilobytes, to the parts that podgpu uses."""

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from config.patterns import parse_pattern
from pipeline.kube.json_access import as_dict, as_dicts, as_text, controller_of
from pipeline.model import Claim, Pod, PodContainer, PodInfo, StringPairs
from pipeline.model.plugin_ids import glob_matcher
from sources.pods.allocations.annotation_table import allocations, kai_allocation
from sources.pods.allocations.kai import groups
from sources.pods.allocations.pod_facts import PodFacts, amount
from sources.pods.claim_details import claims_of
from sources.pods.options import Options
from sources.pods.timestamps import Timestamps

_MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation that the kubelet sets on the mirror pod of a static pod: the UID by which the kubelet
knows the static pod. No user can add it to an existing pod. `config.hash` is not used, because
other pods have it too."""

_TEMPLATE_HASH: Final = "pod-template-hash"
_NATIVE: Final = "kubernetes.io/"

_Kind = Literal["init", "app", "ephemeral"]
_LISTS: Final[tuple[tuple[str, str, _Kind], ...]] = (
    ("initContainers", "initContainerStatuses", "init"),
    ("containers", "containerStatuses", "app"),
    ("ephemeralContainers", "ephemeralContainerStatuses", "ephemeral"),
)

_MAX_VALUE: Final = 1024
"""Maximum number of characters of a value. Labels have at most 63. An annotation may contain a
whole file, which would be in memory many times as a label of every series of the pod."""

_CACHE_SIZE: Final = 4096
"""Number of names whose result is cached: the pods of a node have some hundred different names."""

LabelFilter: TypeAlias = Callable[[Mapping[str, object]], tuple[StringPairs, int]]
"""Function that returns the selected labels, sorted by name, and the number of dropped ones."""


def label_filter(globs: tuple[str, ...], limit: int, patterns: Iterable[str] = ()) -> LabelFilter:
    """Return a function that selects labels or annotations of a pod by name.

    It drops values of more than 1024 characters. If more than `limit` are left, it keeps the first
    ones in the order of names, so that the result is stable.

    Args:
        globs: glob patterns of the names to keep.
        limit: maximum number per pod.
        patterns: regular expressions; a name that contains a match is kept too.
    """
    matchers = [glob_matcher(globs)] if globs else []
    matchers += map(parse_pattern, patterns)

    @lru_cache(_CACHE_SIZE)
    def is_selected(name: str) -> bool:
        return any(matches(name) for matches in matchers)

    def select(values: Mapping[str, object]) -> tuple[StringPairs, int]:
        selected = [(name, as_text(values[name])) for name in sorted(values) if is_selected(name)]
        short = [(name, value) for name, value in selected if len(value) <= _MAX_VALUE]
        pairs = tuple([(sys.intern(name), sys.intern(value)) for name, value in short[:limit]])
        return pairs, len(selected) - len(pairs)

    return select


@dataclass(frozen=True, slots=True)
class PodOmissions:
    """What is missing in a mapped pod: dropped labels and unreadable annotations.

    Attributes:
        uid: UID of the pod.
        pod: `namespace/name`, for people.
        omitted: number of selected labels and annotations that were dropped.
        problems: why an annotation cannot be read, by its key.
    """

    uid: str
    pod: str
    omitted: int
    problems: Mapping[str, str]


class PodMapper:
    """Maps decoded pods of the API server to `Pod`.

    Args:
        options: which labels to keep, and which annotations to read.
        timestamps: converts timestamps.
        report: receives what is missing in a mapped pod.
    """

    def __init__(
        self, options: Options, timestamps: Timestamps, report: Callable[[PodOmissions], None]
    ) -> None:
        self._labels = label_filter(options.labels, options.max_labels, options.label_patterns)
        self._annotations = label_filter(options.annotations, options.max_labels)
        self._configured = options.device_annotations
        self._resources = options.resources
        self._counted = frozenset(name for names in self._resources.values() for name in names)
        self._sharing = "kai" in options.schedulers
        self._reserving = frozenset(options.reservation_namespaces)
        self._timestamps = timestamps
        self._report = report

    def __call__(self, raw: Mapping[str, Any]) -> Pod | None:
        """Return the pod; None if its UID, name or namespace is missing."""
        metadata, spec = as_dict(raw.get("metadata")), as_dict(raw.get("spec"))
        status = as_dict(raw.get("status"))
        uid, name = as_text(metadata.get("uid")), as_text(metadata.get("name"))
        namespace = sys.intern(as_text(metadata.get("namespace")))
        if not (uid and name and namespace):
            return None
        phase = sys.intern(as_text(status.get("phase")))
        ended = phase in {"Succeeded", "Failed"}
        deleting = "deletionTimestamp" in metadata
        found = tuple(containers(spec, status, self._timestamps, ended=ended, deleting=deleting))
        annotations = as_dict(metadata.get("annotations"))
        claims: tuple[Claim, ...] = ()
        problems: dict[str, str] = {}
        requests = requested_resources(spec)
        all_labels = as_dict(metadata.get("labels"))
        node = as_text(spec.get("nodeName"))
        facts = PodFacts(
            namespace, name, uid, annotations, found, node, requests, labels=all_labels
        )
        members = groups(all_labels) if self._sharing else []
        reserving = bool(members) and namespace in self._reserving
        # A restored or copied pod may have the annotations of another pod.
        extended = _extended(requests, self._counted)
        if wants := bool(extended or as_dicts(spec.get("resourceClaims"))):
            claims, problems = allocations(facts, self._configured, self._resources)
        if members:
            further = kai_allocation(facts, reserving=reserving)
            claims, problems = claims + further[0], problems | further[1]
        labels, dropped_labels = self._labels(all_labels)
        shown, dropped = self._annotations(annotations)
        if problems or dropped_labels or dropped:
            omitted = dropped_labels + dropped
            self._report(PodOmissions(uid, f"{namespace}/{name}", omitted, problems))
        qos = sys.intern(as_text(status.get("qosClass")))
        return Pod(
            PodInfo(uid, namespace, name, phase, *_workload(metadata), qos, labels, shown),
            self._timestamps.parse(status.get("startTime")),
            ended,
            as_text(annotations.get(_MIRROR)),
            found,
            claims,
            wants,
            extended,
            tuple(members) if reserving else (),
            claims_of(spec, status),
        )


def _extended(
    requests: Mapping[str, Mapping[str, str]], of_schedulers: Container[str]
) -> tuple[str, ...]:
    """Return the extended resources that the containers of a pod request.

    The resources of schedulers are included, although some of them are in the domain kubernetes.io,
    whose resources are not extended resources.
    """
    found = {
        sys.intern(name)
        for amounts in requests.values()
        for name, quantity in amounts.items()
        if "/" in name and (_NATIVE not in name or name in of_schedulers)
        if amount(quantity) > 0
    }
    return tuple(sorted(found))


def containers(
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    timestamps: Timestamps,
    *,
    ended: bool,
    deleting: bool,
) -> Iterator[PodContainer]:
    """Yield the containers of a pod, init containers first.

    Args:
        spec: pod spec.
        status: pod status.
        timestamps: converts timestamps.
        ended: whether the pod has ended.
        deleting: whether the pod is being deleted, so that no container starts again.
    """
    policy = as_text(spec.get("restartPolicy"))
    for spec_key, status_key, kind in _LISTS:
        states = {as_text(state.get("name")): state for state in as_dicts(status.get(status_key))}
        for container in as_dicts(spec.get(spec_key)):
            name = sys.intern(as_text(container.get("name")))
            state = states.get(name, {})
            identity = _first(state, "containerID")
            own = as_text(container.get("restartPolicy"))
            sidecar = kind == "init" and own == "Always"
            yield PodContainer(
                name,
                "sidecar" if sidecar else kind,
                identity.partition("://")[2] or identity,
                # A waiting container has the time of its last start in its last state.
                timestamps.parse(_first(state, "startedAt")),
                ended or _ended(container, state, kind, own or policy, deleting=deleting),
            )


def _first(state: Mapping[str, Any], key: str) -> str:
    """Return a text from the status of a container, or from the newest state that contains it."""
    now, last = as_dict(state.get("state")), as_dict(state.get("lastState"))
    parts = (state, now.get("running"), now.get("terminated"), last.get("terminated"))
    return next((found for part in parts if (found := as_text(as_dict(part).get(key)))), "")


def _ended(
    container: Mapping[str, Any],
    state: Mapping[str, Any],
    kind: _Kind,
    policy: str,
    *,
    deleting: bool,
) -> bool:
    terminated = as_dict(state.get("state")).get("terminated")
    if terminated is None:
        return False
    if deleting or kind == "ephemeral":
        return True
    if policy == "Never":
        # If there are restart rules, the kubelet may still start the container again.
        return not as_dicts(container.get("restartPolicyRules"))
    # A sidecar has the restart policy Always on its own container, and keeps running.
    lasting = policy == "Always" and (kind == "app" or "restartPolicy" in container)
    return not lasting and as_dict(terminated).get("exitCode") == 0


def requested_resources(spec: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the amounts that each container requests: resource to amount, by container name."""
    found: dict[str, dict[str, str]] = {}
    for container in as_dicts(spec.get("initContainers")) + as_dicts(spec.get("containers")):
        resources = as_dict(container.get("resources"))
        amounts = as_dict(resources.get("requests")) | as_dict(resources.get("limits"))
        found[as_text(container.get("name"))] = {
            name: str(amount) for name, amount in amounts.items() if isinstance(amount, str | int)
        }
    return found


def _workload(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and name of a pod's workload; empty texts if the pod has no workload.

    A pod names only its direct owner. If this is a ReplicaSet whose name ends with the hash in the
    pod's label, the rest of the name is the Deployment's. A Job of a CronJob cannot be
    distinguished from another Job. The Node, which owns mirror pods, is not a workload.
    """
    owner = controller_of(metadata)
    kind, name = as_text(owner.get("kind")), as_text(owner.get("name"))
    if kind == "Node":
        return "", ""
    template = as_text(as_dict(metadata.get("labels")).get(_TEMPLATE_HASH))
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        kind, name = "Deployment", name.removesuffix(f"-{template}")
    return sys.intern(kind), sys.intern(name)
