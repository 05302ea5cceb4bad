"""Who holds a device, once all claims are weighed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipeline.model.claims import Evidence
from pipeline.model.container_ref import PartialRef
from pipeline.model.devices import Device
from pipeline.model.instant import Instant
from pipeline.model.pods import PodInfo


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that holds a device or a part of it.

    Attributes:
        subject: the container.
        share: part of the device that it holds, in (0, 1]; None when nobody says.
        since: when it began, as well as is known.
        source: name of the source whose word won.
        evidence: what that word rests on.
        pod: what is known of its pod; None where no source tells of pods, or not of this one.
        replicas: the numbers of the replicas that it has, where a device plugin made several of the
            device, to share it; in their order.
        since_observed: no source has told when it began: `since` is when podgpu first saw it, and
            it has been so at least since then.
    """

    subject: PartialRef
    share: float | None
    since: Instant
    source: str
    evidence: Evidence
    pod: PodInfo | None = None
    replicas: tuple[str, ...] = ()
    since_observed: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """A container that has access to a device and holds nothing of it.

    Attributes:
        subject: the container.
        source: name of the source that said so.
        evidence: what gives the access: a variable or a mount, or a claim with `adminAccess`.
    """

    subject: PartialRef
    source: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Attribution:
    """A device and everyone who holds it.

    The join makes one object per value and keeps it while nothing changes, so that a sink can hang
    what it rendered from it on the object itself (weakly: `weakref.WeakKeyDictionary`; never by
    `id()`, which is used again at once).

    Attributes:
        device: the device.
        present: False for a physical GPU that was there before and can't be enumerated now.
        holders: sorted by subject; empty when nobody is known to hold the device.
        conflicts: how many pods' claims on the device contradict another's: those that are
            overruled, and those that are shown although only one of them can be true.
        conflicting_pods: those pods, as `namespace/name`, sorted; a pod without a known name by its
            uid.
        access: containers that have access to the device and hold nothing of it; sorted.
    """

    device: Device
    present: bool
    holders: tuple[Holder, ...]
    conflicts: int = 0
    conflicting_pods: tuple[str, ...] = ()
    access: tuple[Access, ...] = ()


def only_holder(holders: Iterable[Holder]) -> Holder | None:
    """Return the only container that holds a device; of several in one pod, none in particular.

    None where nobody holds it, or several pods do: its readings are then the device's alone, since
    a copy for each holder would make every sum wrong. One that came back under another id is still
    the same container here.
    """
    named = {
        (h.subject.namespace, h.subject.pod or h.subject.uid, h.subject.container): h
        for h in holders
    }
    if len({(namespace, pod) for namespace, pod, _ in named}) != 1:
        return None
    only = next(iter(named.values()))
    if len(named) == 1:
        return only
    return replace(only, subject=replace(only.subject, container="", container_id=""))
