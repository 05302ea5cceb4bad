"""Holders of devices: the result of arbitration between all claims."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipeline.model.claims import ClaimedDevice, Evidence, PartialRef
from pipeline.model.devices import Device
from pipeline.model.instant import Instant
from pipeline.model.pods import PodInfo


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that holds a device or a part of it.

    Attributes:
        subject: the container.
        share: the part of the device that it holds, in (0, 1]; None if unknown.
        since: when the holding began, as far as known.
        source: name of the source whose claim is valid.
        evidence: what that claim is based on.
        pod: what is known of its pod; None if no source reports the pod.
        replicas: numbers of the container's replicas, in order, where a device plugin offers
            several replicas of the device.
        since_observed: whether no source has reported the start. Then `since` is when podgpu first
            saw the holding, which may have begun earlier.
        claimed: the ResourceClaim by which the container holds the device, and the device's name in
            it; None where there is none or no source reports it.
    """

    subject: PartialRef
    share: float | None
    since: Instant
    source: str
    evidence: Evidence
    pod: PodInfo | None = None
    replicas: tuple[str, ...] = ()
    since_observed: bool = False
    claimed: ClaimedDevice | None = None


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """A container that has access to a device and does not hold it.

    Attributes:
        subject: the container.
        source: name of the source that reported it.
        evidence: what gives access: a variable or a mount, or a ResourceClaim with `adminAccess`.
    """

    subject: PartialRef
    source: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Attribution:
    """A device with its holders, conflicts and access.

    The join makes one object per value and keeps it as long as nothing changes, so that a sink can
    cache what it rendered by the object itself (weakly: `weakref.WeakKeyDictionary`; never by
    `id()`, which Python reuses).

    Attributes:
        device: the device.
        present: False for a physical GPU that was enumerated before and is not enumerated now.
        holders: sorted by subject; empty when no holder is known.
        conflicting_pods: pods whose claims on the device contradict those of another pod. Some were
            overruled. Others are all holders, although only one of them can hold the device.
            Sorted, as `namespace/name`; a pod without a known name by its uid.
        access: containers that have access to the device and do not hold it; sorted.
    """

    device: Device
    present: bool
    holders: tuple[Holder, ...]
    conflicting_pods: tuple[str, ...] = ()
    access: tuple[Access, ...] = ()

    @property
    def conflicts(self) -> int:
        """Number of pods whose claims contradict the claim of another pod."""
        return len(self.conflicting_pods)


def _owner(subject: PartialRef) -> str:
    """Return what distinguishes an owner in its namespace.

    A pod keeps its name while its uid becomes known. Two runtimes may have containers of one name.
    """
    return (subject.pod if subject.kind == "pod" else "") or subject.uid


def only_holder(holders: Iterable[Holder]) -> Holder | None:
    """Return the only container that holds a device, or the only pod if it has several of them.

    In the latter case the result has no container name, and no ResourceClaim unless all containers
    have the same. None if the device has no holder, or if several pods hold it: then its readings
    have no pod labels, since a copy for each holder would make every sum wrong. A container that
    restarted under a new id is the same container.
    """
    named = {(h.subject.namespace, _owner(h.subject), h.subject.container): h for h in holders}
    if len({(namespace, pod) for namespace, pod, _ in named}) != 1:
        return None
    only = next(iter(named.values()))
    if len(named) == 1:
        return only
    return replace(
        only,
        subject=replace(only.subject, container="", container_id=""),
        claimed=only.claimed if len({h.claimed for h in named.values()}) == 1 else None,
    )
