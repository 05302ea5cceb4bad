"""Who stands together in a report, and what a group is called."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from pipeline.model.usage_window import ContainerIdentity, UsageRow

What: TypeAlias = Literal["namespace", "pod", "workload", "device", "label"]

_PLAIN: Final[Mapping[str, What]] = {
    "namespace": "namespace",
    "pod": "pod",
    "workload": "workload",
    "device": "device",
}
_LABEL: Final = "label:"
# A name and a prefix that is a DNS subdomain:
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_KEY: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)

NONE: Final = "(none)"
"""What has no such label, or is known by no such name. No name of Kubernetes' has parentheses."""

EMPTY: Final = "(empty)"
"""A label that is there without a value."""


class GroupByError(ValueError):
    """A text doesn't say by what to group; its own text says what does."""


@dataclass(frozen=True, slots=True)
class GroupBy:
    """By what a report groups.

    Attributes:
        kind: the kind of group.
        label: the key of a pod's label; empty but for `label`.
    """

    kind: What
    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `namespace`, `pod`, `workload`, `device` or `label:KEY`.

        Raises:
            ByError: it is none of them.
        """
        if text in _PLAIN:
            return cls(_PLAIN[text])
        if not text.startswith(_LABEL):
            raise GroupByError(f"write one of {', '.join(_PLAIN)}, {_LABEL}KEY")
        key = text.removeprefix(_LABEL)
        if not _KEY.fullmatch(key):
            raise GroupByError(
                f"write {_LABEL}KEY with the key of a pod's label, such as label:team"
            )
        return cls("label", key)

    def __str__(self) -> str:
        """Return what `parse` reads."""
        return f"{_LABEL}{self.label}" if self.kind == "label" else self.kind

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the parts of a group's key."""
        return _FIELDS[self.kind]


_FIELDS: Final[Mapping[What, tuple[str, ...]]] = {
    "namespace": ("namespace",),
    "pod": ("namespace", "pod", "pod_uid"),
    "workload": ("namespace", "owner_kind", "owner_name"),
    "device": ("device", "device_name"),
    "label": ("label",),
}


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group.

    Attributes:
        parts: its parts, as `GroupBy.fields` names them; None for one that isn't known, or isn't
            there.
        name: for people.
    """

    parts: tuple[str | None, ...]
    name: str


def group_usage(
    usage: Iterable[UsageRow], names: Mapping[str, str], by: GroupBy
) -> list[tuple[GroupKey, list[UsageRow]]]:
    """Return the groups, each with what belongs to it.

    What belongs to nobody is left out, but by device: there is a group for each device, with all of
    it.

    Args:
        usage: what was had.
        names: of devices, by uuid.
        by: by what to group.
    """
    of_all = list(usage)
    named = [one for one in of_all if one.container is not None]
    key = _keys(by, names, _pods(named))
    found: dict[tuple[str | None, ...], list[UsageRow]] = {}
    every = named
    if by.kind == "device":
        every = of_all
        found = {(device, name or None): [] for device, name in names.items()}
    for one in every:
        found.setdefault(key(one), []).append(one)
    shown = _names(by, list(found))
    return [(GroupKey(parts, shown[parts]), members) for parts, members in found.items()]


_Keys: TypeAlias = Callable[[UsageRow], tuple[str | None, ...]]


_Pod: TypeAlias = tuple[str, str, str]
"""Uid, namespace and name."""


def _pods(every: Iterable[UsageRow]) -> Mapping[_Pod, ContainerIdentity]:
    """Return what is known of each pod, wherever it stands.

    One of its containers may have ended before a source told of the pod, another after. What was
    had under a uid without a name is that of the pod's only name. Where a uid has had several
    names, each keeps what was had under it, and what was had without a name stays without one.
    """
    told: dict[str, dict[_Pod, set[ContainerIdentity]]] = {}
    for one in every:
        if one.container is not None and one.container.subject.uid:
            pod = _pod(one.container)
            told.setdefault(pod[0], {}).setdefault(pod, set()).add(one.container)
    found: dict[_Pod, ContainerIdentity] = {}
    for pods in told.values():
        if len([pod for pod in pods if pod[2]]) > 1:
            found |= {pod: _known(several) for pod, several in pods.items()}
        else:
            known = _known(set().union(*pods.values()))
            found |= dict.fromkeys(pods, known)
    return found


def _pod(attribution: ContainerIdentity) -> _Pod:
    subject = attribution.subject
    return subject.uid, subject.namespace, subject.pod


def _known(several: Collection[ContainerIdentity]) -> ContainerIdentity:
    """Return all that is known of a pod, in whatever order it is told."""
    subjects = [one.subject for one in several]
    # What is known is more than what isn't; of two words one is taken, always the same.
    named = max(subjects, key=lambda each: (bool(each.pod), each.namespace, each.pod))
    owner = max(several, key=lambda each: (bool(each.owner_name), each.owner_kind, each.owner_name))
    labels = max(one.labels for one in several)
    return ContainerIdentity(named, owner.owner_kind, owner.owner_name, labels)


def _keys(by: GroupBy, names: Mapping[str, str], pods: Mapping[_Pod, ContainerIdentity]) -> _Keys:
    def whose(one: UsageRow) -> ContainerIdentity:
        assert one.container is not None  # noqa: S101 - those of nobody are left out
        return pods.get(_pod(one.container), one.container)

    def device(one: UsageRow) -> tuple[str | None, ...]:
        return one.device, names.get(one.device) or None

    def namespace(one: UsageRow) -> tuple[str | None, ...]:
        return (whose(one).subject.namespace or None,)

    def pod(one: UsageRow) -> tuple[str | None, ...]:
        subject = whose(one).subject
        return subject.namespace or None, subject.pod or None, subject.uid or None

    def workload(one: UsageRow) -> tuple[str | None, ...]:
        known = whose(one)
        subject = known.subject
        if known.owner_name:
            return subject.namespace or None, known.owner_kind or None, known.owner_name
        return subject.namespace or None, "Pod", subject.pod or _uid(subject.uid or None)

    def label(one: UsageRow) -> tuple[str | None, ...]:
        return (dict(whose(one).labels).get(by.label),)

    return {
        "namespace": namespace,
        "pod": pod,
        "workload": workload,
        "device": device,
        "label": label,
    }[by.kind]


def _names(
    by: GroupBy, groups: Iterable[tuple[str | None, ...]]
) -> Mapping[tuple[str | None, ...], str]:
    """Return the names of groups, for people: each its own."""
    if by.kind == "pod":
        return _pod_names(groups)
    return {parts: _name(by, parts) for parts in groups}


def _pod_names(
    groups: Iterable[tuple[str | None, ...]],
) -> Mapping[tuple[str | None, ...], str]:
    alike: dict[str, list[tuple[str | None, ...]]] = {}
    for parts in groups:
        namespace, pod, uid = parts
        name = _uid(uid) if pod is None else pod
        if namespace is not None or pod is not None:
            name = f"{namespace or NONE}/{name}"
        alike.setdefault(name, []).append(parts)
    return {
        parts: f"{name} ({_uid(parts[2])})" if len(several) > 1 else name
        for name, several in alike.items()
        for parts in several
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
