"""Grouping of usage rows for a report, and the names of groups."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from config.message_text import nearest
from pipeline.model import OwnerKind, owner_kind, owner_text
from pipeline.model.ledger_usage import DeviceTotal

GroupKind: TypeAlias = Literal[
    "namespace", "pod", "workload", "job", "user", "account", "partition", "image", "device",
    "model", "node", "cluster", "label",
]  # fmt: skip

_LABEL: Final = "label:"
# A name and a prefix that is a DNS subdomain:
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_KEY: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)

_DEVICE_WORDS: Final = ("gpu", "gpus", "mig")
"""Words for a device, which is the documented term."""

NONE: Final = "(none)"
"""Name of a missing label or an unknown name. Names in Kubernetes contain no parentheses."""

EMPTY: Final = "(empty)"
"""Name of a label with an empty value."""


class GroupByError(ValueError):
    """A text is not a valid grouping. The message says what to write instead."""


@dataclass(frozen=True, slots=True)
class GroupBy:
    """How a report is grouped.

    Attributes:
        kind: the kind of group.
        label: the key of a pod's label; empty unless `kind` is `label`.
        several_nodes: whether the report is on several nodes, so that the keys of pods and devices
            begin with cluster and node.
    """

    kind: GroupKind
    label: str = ""
    several_nodes: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse one of `GroupKind`, but `label:KEY` in place of `label`.

        Raises:
            GroupByError: the text is none of these, or KEY is not the key of a label.
        """
        for kind in _FIELDS:
            if text == kind != "label":
                return cls(kind)
        if "," in text:
            raise GroupByError(
                "write one grouping; for the pods of one device: --device 1 --by pod"
            )
        if not text.startswith(_LABEL):
            kinds: dict[str, str] = {kind: kind for kind in _FIELDS} | {"label": f"{_LABEL}KEY"}
            word = text.partition(":")[0]
            guess = "device" if word.lower() in _DEVICE_WORDS else nearest(word, kinds)
            hint = f'; did you mean "{kinds[guess]}"?' if guess else ""
            raise GroupByError(f"write one of {', '.join(kinds.values())}{hint}")
        key = text.removeprefix(_LABEL)
        if not _KEY.fullmatch(key):
            raise GroupByError(
                f"write {_LABEL}KEY with the key of a pod's label, such as label:team"
            )
        return cls("label", key)

    def __str__(self) -> str:
        """Return the text that `parse` accepts."""
        return f"{_LABEL}{self.label}" if self.kind == "label" else self.kind

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the parts of a group's key."""
        return (_PLACES.get(self.kind, ()) if self.several_nodes else ()) + _FIELDS[self.kind]

    @property
    def is_of_devices(self) -> bool:
        """Whether groups are of devices, with all of their time, and not of containers."""
        return self.kind in {"device", "model", "node", "cluster"}

    @property
    def is_of_facts(self) -> bool:
        """Whether groups are of jobs, or of a fact that only one kind of owner has."""
        return self.kind == "job" or self.kind in OWNER_FACTS


_FIELDS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    "namespace": ("namespace",),
    "pod": ("namespace", "pod", "pod_uid"),
    "workload": ("namespace", "owner_kind", "owner_name"),
    "job": ("slurm_cluster", "job", "job_name", "user", "job_uid"),
    "user": ("user",),
    "account": ("account",),
    "partition": ("partition",),
    "image": ("image",),
    "device": ("device", "device_name"),
    "model": ("model", "profile"),
    "node": ("cluster", "node"),
    "cluster": ("cluster",),
    "label": ("label",),
}
# A job can run on several nodes.
_PLACES: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    "pod": ("cluster", "node"),
    "job": ("cluster",),
    "device": ("cluster", "node"),
}

OWNER_FACTS: Final[Mapping[GroupKind, OwnerKind]] = {
    "user": "job",
    "account": "job",
    "partition": "job",
    "image": "container",
}
"""Groupings by a fact that only one kind of owner has: the label of the same name."""

OWN_WORKLOADS: Final[Mapping[OwnerKind, str]] = {
    "pod": "Pod",
    "job": "SlurmJob",
    "container": "Container",
}
"""Kind of the workload of an owner that belongs to none, and so is its own."""

_WITHOUT_NAMESPACE: Final = ("User", "ComposeProject", "SlurmJob", "Container")
"""Kinds of workloads of owners that are in no namespace."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group of a report.

    Attributes:
        parts: the values of `GroupBy.fields`; None for a value that is unknown or missing.
        name: the group's name in reports.
    """

    parts: tuple[str | None, ...]
    name: str


def device_names(totals: Iterable[DeviceTotal]) -> dict[str, str]:
    """Return a unique name of each device for reports, by uuid: `GPU 1 NVIDIA H200`.

    A device without an index has its uuid in front of its model. MIG instances of one GPU with the
    same profile have their uuid behind it.
    """
    devices = list(totals)
    names = {one.device: _device_name(one) for one in devices}
    count = Counter(names.values())
    return {uuid: f"{name} ({uuid})" if count[name] > 1 else name for uuid, name in names.items()}


def _device_name(one: DeviceTotal) -> str:
    first = one.device if one.index is None else f"GPU {one.index}"
    return f"{first} {one.name}".rstrip()


Parts: TypeAlias = tuple[str | None, ...]
"""The parts of a group's key."""


def group_keys(
    by: GroupBy, found: Iterable[Parts], totals: Iterable[DeviceTotal]
) -> list[GroupKey]:
    """Return the key of each group, with a unique name for reports.

    Args:
        by: how to group.
        found: the parts of each key, each once.
        totals: the devices.
    """
    groups = list(found)
    unique: Mapping[Parts, str] = {}
    if by.kind == "pod":
        unique = _pod_names(groups)
    if by.kind == "job":
        unique = _job_names(groups)
    if by.kind == "device" and by.several_nodes:
        placed = placed_device_names(totals)
        unique = {
            parts: placed[place]
            for parts in groups
            if (place := tuple(part or "" for part in parts[:3])) in placed
        }
    elif by.kind == "device":
        shown = device_names(totals)
        unique = {parts: shown[parts[0]] for parts in groups if parts[0] in shown}
    return [GroupKey(parts, unique.get(parts) or _name(by, parts)) for parts in groups]


def placed_device_names(totals: Iterable[DeviceTotal]) -> dict[Parts, str]:
    """Return a unique name of each device, by cluster, node and uuid: `node-1 GPU 1 NVIDIA H200`.

    On a single node, the names are those of `device_names`.
    """
    devices = list(totals)
    if not any(one.node for one in devices):
        shown = device_names(devices)
        return {("", "", uuid): name for uuid, name in shown.items()}
    names = {
        (one.cluster, one.node, one.device): f"{one.node} {_device_name(one)}" for one in devices
    }
    count = Counter(names.values())
    return {
        place: f"{name} ({'/'.join(place)})" if count[name] > 1 else name
        for place, name in names.items()
    }


def _pod_names(groups: Iterable[Parts]) -> Mapping[Parts, str]:
    """Return a unique name of each pod for reports."""
    alike: dict[str, list[Parts]] = {}
    for parts in groups:
        *_, namespace, pod, uid = parts
        name = uid_name(uid) if pod is None else pod
        if uid is not None and owner_kind(uid) != "pod":
            name = owner_text("", pod or "", uid)
        elif namespace is not None or pod is not None:
            name = f"{namespace or NONE}/{name}"
        alike.setdefault(name, []).append(parts)
    found = _with_uids(alike)
    # Pods of unknown UID on several nodes, and jobs that run on several.
    count = Counter(found.values())
    return {
        parts: f"{name} on {parts[1] or NONE}, {parts[0] or NONE}" if count[name] > 1 else name
        for parts, name in found.items()
    }


def _job_names(groups: Iterable[Parts]) -> Mapping[Parts, str]:
    """Return a unique name of each job for reports: `123 train (alice)`."""
    alike: dict[str, list[Parts]] = {}
    for parts in groups:
        _, job, job_name, user, uid = parts[-5:]
        name = NONE
        if uid is not None:
            name = " ".join([job or uid_name(uid), *filter(None, [job_name])])
            name += f" ({user})" if user else ""
        alike.setdefault(name, []).append(parts)
    found = _with_uids(alike)
    # Slurm clusters of the same name in several clusters.
    count = Counter(found.values())
    return {
        parts: f"{name} in {parts[0] or NONE}" if count[name] > 1 else name
        for parts, name in found.items()
    }


def _with_uids(alike: Mapping[str, Sequence[Parts]]) -> dict[Parts, str]:
    """Return the name of each group, with its uid if groups of other uids have the same name."""
    return {
        parts: f"{name} ({uid_name(parts[-1])})"
        if len({each[-1] for each in members}) > 1
        else name
        for name, members in alike.items()
        for parts in members
    }


def _name(by: GroupBy, parts: Parts) -> str:
    match by.kind, parts:
        case "model", (model, profile):
            return f"{model or NONE} {profile or ''}".rstrip()
        case "device", (uuid, name):
            return f"{uuid} {name}" if name else f"{uuid}"
        case "node", (None, node):
            return node or NONE
        case "workload", (None, kind, name) if kind in _WITHOUT_NAMESPACE:
            return f"{kind}/{name}"
        case "label", ("",):
            return EMPTY
        case _:
            return "/".join(NONE if part is None else part for part in parts)


def uid_name(uid: str | None) -> str:
    """Return the name of a pod of which only the uid is known."""
    return f"uid {uid or 'unknown'}"
