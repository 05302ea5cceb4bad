"""Grouping of the usage of one node, which its ledger reports by device and container."""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from pipeline.ledger.reports.grouped_usage import GroupedUsage, PriceClass
from pipeline.ledger.reports.groups import (
    OWN_WORKLOADS,
    OWNER_FACTS,
    GroupBy,
    Parts,
    group_keys,
    uid_name,
)
from pipeline.ledger.reports.sums import Tally
from pipeline.model.ledger_usage import ContainerIdentity, DeviceTotal, UsageRow, UsageWindow

_INSTANCE = "MIG-"


def grouped(window: UsageWindow, by: GroupBy) -> list[GroupedUsage]:
    """Return the usage of a window by group and price class.

    Args:
        window: the usage of one node.
        by: how to group it; not by node or cluster.
    """
    devices = {one.device: one for one in window.totals}
    timeless = {one.device for one in window.totals if not one.accounted_ns}
    pods = _pods([one for one in window.usage if one.container is not None])
    keys = [_key(by, one, devices, pods) for one in window.usage]
    named = {
        key.parts: key for key in group_keys(by, dict.fromkeys(filter(None, keys)), window.totals)
    }
    unknown_ns = {one.device: one.unknown_ns for one in window.totals}
    found = []
    for one, parts in zip(window.usage, keys, strict=True):
        price = price_class(devices.get(one.device), one)
        unheld = one.held_ns if one.container is None else 0
        of_device = unknown_ns.get(one.device, 0) if one.unknown_ns is None else one.unknown_ns
        unknown = min(of_device, unheld)
        held = one.held_ns - unheld
        # A GPU with MIG instances has only energy: its instances have its time. So its busy time
        # is not a missing part of the sum.
        timed = (
            one.device not in timeless or one.held_ns or one.container or one.busy_ns is not None
        )
        idle = None
        if one.busy_ns is not None:
            idle = held - one.busy_ns - (one.held_without_busy_ns if held else 0)
        found.append(
            GroupedUsage(
                None if parts is None else named[parts],
                price,
                held,
                unheld - unknown,
                unknown,
                _tally(one.busy_ns, partial=one.busy_partial) if timed else Tally(),
                _tally(idle, partial=one.busy_partial) if timed else Tally(),
                _tally(one.energy_mj, partial=one.energy_partial),
                one.holdings,
                Tally() if one.busy_ns is None else Tally.of(one.contested_ns),
                Tally() if one.busy_ns is None else Tally.of(one.switching_ns),
            )
        )
    return found


def price_class(device: DeviceTotal | None, one: UsageRow) -> PriceClass:
    """Return what the price of a row depends on."""
    is_instance = one.device.startswith(_INSTANCE)
    if device is None:
        return PriceClass("", "", is_instance, since_ns=one.since_ns)
    return PriceClass(device.model, device.profile, is_instance, since_ns=one.since_ns)


def _tally(amount: int | None, *, partial: bool) -> Tally[int]:
    return Tally(amount, amount is None or partial)


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
    by: GroupBy,
    one: UsageRow,
    devices: Mapping[str, DeviceTotal],
    pods: Mapping[_Pod, ContainerIdentity],
) -> Parts | None:
    if by.is_of_devices:
        total = devices.get(one.device, DeviceTotal(one.device, "", 0, 0, None, None))
        if by.kind == "model":
            return total.model or None, total.profile or None
        return one.device, total.name or None
    if one.container is None:
        return None
    return _owner_key(by, pods.get(_pod(one.container), one.container))


def _owner_key(by: GroupBy, known: ContainerIdentity) -> Parts:
    subject, labels = known.subject, dict(known.labels)
    kind, pod, uid = subject.kind, subject.pod or None, subject.uid or None
    # Only pods are in a namespace. For a job, it is the Slurm cluster.
    namespace = (subject.namespace or None) if kind == "pod" else None
    match by.kind:
        case "job" if kind == "job":
            cluster = subject.namespace or None
            return cluster, pod, labels.get("job_name") or None, labels.get("user") or None, uid
        case "job":
            return (None,) * len(by.fields)
        case "namespace":
            return (namespace,)
        case "pod":
            return namespace, pod, uid
        case "workload" if known.owner_name:
            return namespace, known.owner_kind or None, known.owner_name
        case "workload":
            return namespace, OWN_WORKLOADS[kind], pod or uid_name(uid)
        case "label":
            return (labels.get(by.label),)
        case fact:
            return ((labels.get(fact) or None) if kind == OWNER_FACTS[fact] else None,)
