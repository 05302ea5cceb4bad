"""Pods, as the API server tells of them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.model.claims import Claim, RawDeviceId
from pipeline.model.instant import Instant

StringPairs: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted (name, value) pairs, each name once."""


@dataclass(frozen=True, slots=True)
class PodInfo:
    """What sinks show of a pod.

    Attributes:
        uid: the API server's; for a static pod that of its mirror.
        namespace: its namespace.
        name: its name.
        phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        owner_kind: kind of the workload that made it, such as `Deployment`; empty without one.
        owner_name: name of that workload.
        qos: `Guaranteed`, `Burstable` or `BestEffort`; empty when unknown.
        labels: those that the configuration lets through.
        annotations: likewise.
    """

    uid: str
    namespace: str
    name: str
    phase: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    qos: str = ""
    labels: StringPairs = ()
    annotations: StringPairs = ()


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container of a pod.

    Attributes:
        name: unique in its pod.
        kind: `init` runs before the others and ends, `sidecar` is an init container that stays.
        container_id: the runtime's, without the runtime's name; empty before it exists.
        started: when it started last; None while it never did.
        ended: it has ended and is not going to be started again.
    """

    name: str
    kind: Literal["init", "sidecar", "app", "ephemeral"] = "app"
    container_id: str = ""
    started: Instant | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A ResourceClaim that a pod uses.

    Attributes:
        name: in the pod's namespace.
        uid: the API server's; empty while the object could not be read. Then nothing else but the
            name is known.
        own: it was made for this pod alone, from a template.
        created: when the object was created.
        allocated: when its devices were allocated; None where the API server doesn't say.
        admin: the devices, as `dra` ids, to which it gives admin access: they are used beside
            their holders, and not held.
    """

    name: str
    uid: str = ""
    own: bool = False
    created: Instant | None = None
    allocated: Instant | None = None
    admin: tuple[RawDeviceId, ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of this node.

    Attributes:
        info: what sinks show of it.
        started: when the kubelet took it on (`status.startTime`, by the node's clock, in whole
            seconds); before that it holds nothing that the kubelet hands out.
        ended: no container of it runs or will run: the phase is `Succeeded` or `Failed`.
        static_uid: the uid by which the kubelet and the runtime know a static pod, which is not
            that of its mirror; empty for all others.
        containers: init containers first, in the order of the pod's spec.
        claims: what annotations say that it holds.
        wants_devices: a container asks for an extended resource or a resource claim.
        requests: the extended resources that its containers request; None if unknown.
        reserves: the groups of pods for which a scheduler made this pod, to get a device from the
            kubelet that they share. It holds nothing itself: they hold what it got.
        resource_claims: the ResourceClaims that it uses, each once.
    """

    info: PodInfo
    started: Instant | None = None
    ended: bool = False
    static_uid: str = ""
    containers: tuple[PodContainer, ...] = ()
    claims: tuple[Claim, ...] = ()
    wants_devices: bool = False
    requests: tuple[str, ...] | None = None
    reserves: tuple[str, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
