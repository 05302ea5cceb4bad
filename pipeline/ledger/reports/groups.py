"""Grouping of usage rows for a report, and the names of groups."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from config.message_text import nearest
from pipeline.model.ledger_usage import ContainerIdentity, DeviceTotal, UsageRow

GroupKind: TypeAlias = Literal["namespace", "pod", "workload", "device", "label"]

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
    """

    kind: GroupKind
    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `namespace`, `pod`, `workload`, `device` or `label:KEY`.

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
        return _FIELDS[self.kind]


_FIELDS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    "namespace": ("namespace",),
    "pod": ("namespace", "pod", "pod_uid"),
    "workload": ("namespace", "owner_kind", "owner_name"),
    "device": ("device", "device_name"),
    "label": ("label",),
}


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


def group_usage(
    usage: Iterable[UsageRow], totals: Sequence[DeviceTotal], by: GroupBy
) -> list[tuple[GroupKey, list[UsageRow]]]:
    """Return the groups with their usage rows.

    Unattributed usage is left out. If grouped by device, each device is a group with all of its
    usage, including unattributed usage.

    Args:
        usage: the usage rows.
        totals: the devices.
        by: how to group.
    """
    rows = list(usage)
    names = {one.device: one.name for one in totals}
    named = [one for one in rows if one.container is not None]
    pods = _pods(named)
    found: dict[tuple[str | None, ...], list[UsageRow]] = {}
    selected = named
    if by.kind == "device":
        selected = rows
        found = {(device, name or None): [] for device, name in names.items()}
    for one in selected:
        found.setdefault(_key(by, one, names, pods), []).append(one)
    unique: Mapping[tuple[str | None, ...], str] = {}
    if by.kind == "pod":
        unique = _pod_names(found)
    if by.kind == "device":
        shown = device_names(totals)
        unique = {parts: shown[parts[0]] for parts in found if parts[0] in shown}
    return [
        (GroupKey(parts, unique.get(parts) or _name(by, parts)), members)
        for parts, members in found.items()
    ]


_Pod: TypeAlias = tuple[str, str, str]
"""Uid, namespace and name."""


def _pods(selected: Iterable[UsageRow]) -> Mapping[_Pod, ContainerIdentity]:
    """Return the combined properties of each pod, from all of its rows.

    Some containers of a pod may have ended before a source reported the pod's name. A row with a
    uid but no name belongs to the only pod name with this uid. If a uid has several names, such a
    row stays without a name.
    """
    containers_by_pod: dict[str, dict[_Pod, set[ContainerIdentity]]] = {}
    for one in selected:
        if one.container is not None and one.container.subject.uid:
            pod = _pod(one.container)
            containers_by_pod.setdefault(pod[0], {}).setdefault(pod, set()).add(one.container)
    found: dict[_Pod, ContainerIdentity] = {}
    for pods in containers_by_pod.values():
        if len([pod for pod in pods if pod[2]]) > 1:
            found |= {pod: _merge_identities(identities) for pod, identities in pods.items()}
        else:
            known = _merge_identities(set().union(*pods.values()))
            found |= dict.fromkeys(pods, known)
    return found


def _pod(attribution: ContainerIdentity) -> _Pod:
    subject = attribution.subject
    return subject.uid, subject.namespace, subject.pod


def _merge_identities(identities: Collection[ContainerIdentity]) -> ContainerIdentity:
    """Return the known properties of a pod. The result does not depend on the order of rows."""
    subjects = [one.subject for one in identities]
    # Prefer known values to unknown ones, and choose among different ones consistently.
    named = max(subjects, key=lambda each: (bool(each.pod), each.namespace, each.pod))
    owner = max(
        identities, key=lambda each: (bool(each.owner_name), each.owner_kind, each.owner_name)
    )
    labels = max(one.labels for one in identities)
    return ContainerIdentity(named, owner.owner_kind, owner.owner_name, labels)


def _key(
    by: GroupBy, one: UsageRow, names: Mapping[str, str], pods: Mapping[_Pod, ContainerIdentity]
) -> tuple[str | None, ...]:
    if by.kind == "device" or one.container is None:  # in other groups, all rows have a container
        return one.device, names.get(one.device) or None
    known = pods.get(_pod(one.container), one.container)
    subject = known.subject
    namespace, pod, uid = subject.namespace or None, subject.pod or None, subject.uid or None
    match by.kind:
        case "namespace":
            return (namespace,)
        case "pod":
            return namespace, pod, uid
        case "workload" if known.owner_name:
            return namespace, known.owner_kind or None, known.owner_name
        case "workload":
            return namespace, "Pod", pod or _uid(uid)
        case "label":
            return (dict(known.labels).get(by.label),)


def _pod_names(
    groups: Iterable[tuple[str | None, ...]],
) -> Mapping[tuple[str | None, ...], str]:
    """Return a unique name of each pod for reports."""
    alike: dict[str, list[tuple[str | None, ...]]] = {}
    for parts in groups:
        namespace, pod, uid = parts
        name = _uid(uid) if pod is None else pod
        if namespace is not None or pod is not None:
            name = f"{namespace or NONE}/{name}"
        alike.setdefault(name, []).append(parts)
    return {
        parts: f"{name} ({_uid(parts[2])})" if len(members) > 1 else name
        for name, members in alike.items()
        for parts in members
    }


def _name(by: GroupBy, parts: tuple[str | None, ...]) -> str:
    match by.kind, parts:
        case "device", (uuid, name):
            return f"{uuid} {name}" if name else f"{uuid}"
        case "label", ("",):
            return EMPTY
        case _:
            return "/".join(NONE if part is None else part for part in parts)


def _uid(uid: str | None) -> str:
    return f"uid {uid or 'unknown'}"
