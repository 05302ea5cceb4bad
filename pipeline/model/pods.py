"""Pods, as the API server reports them, and containers, as the container runtime reports them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.model.claims import Claim, PartialRef, RawDeviceId
from pipeline.model.instant import Instant

StringPairs: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted pairs of name and value, each name once."""


@dataclass(frozen=True, slots=True)
class PodInfo:
    """What sinks show of a pod, of a job, or of a container without a pod.

    Of a job and of a container, `uid`, `namespace` and `name` are those of its `PartialRef`, and
    the labels are what is known of it: `JOB_FACTS` or `CONTAINER_FACTS`, without empty ones.

    Attributes:
        uid: the API server's uid; of a static pod the uid of its mirror pod.
        namespace: namespace of the pod.
        name: name of the pod.
        phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        owner_kind: kind of the workload that created it, such as `Deployment`; `User` for a job,
            `ComposeProject` for a container of a Compose project; empty without one.
        owner_name: name of that workload.
        qos: `Guaranteed`, `Burstable` or `BestEffort`; empty if unknown.
        labels: the labels that the configuration selects.
        annotations: the annotations that the configuration selects.
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
        name: name of the container, unique in its pod.
        kind: `init` runs before the others and ends; `sidecar` is an init container that stays.
        container_id: the runtime's id, without the runtime's name; empty before it exists.
        started: when it last started; None if it never did.
        ended: whether it has ended and will not be started again.
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
        name: name of the ResourceClaim, in the pod's namespace.
        uid: the API server's uid; empty if the object could not be read. Then only the name is
            known.
        own: whether it was made from a template, only for this pod.
        created: when the object was created; None if it is unknown.
        allocated: when its devices were allocated; None where the API server does not report it.
        admin: the devices, as `dra` ids, to which it gives admin access: access next to their
            holders, which is not a holding.
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
        started: when the kubelet admitted it (`status.startTime`, by the node's clock, in whole
            seconds); None before that. Then it holds nothing that the kubelet allocates.
        ended: whether the phase is `Succeeded` or `Failed`: no container runs or will run.
        static_uid: the uid by which the kubelet and the runtime know a static pod, which is not the
            uid of its mirror pod; empty for all other pods.
        containers: init containers first, in the order of the pod's spec.
        claims: claims that were read from its annotations.
        wants_devices: whether a container requests an extended resource or a ResourceClaim.
        requests: the extended resources that its containers request; None if unknown.
        reserves: the groups of pods for which this is the reservation pod. A scheduler creates such
            a pod to get a device from the kubelet, which the pods of the group share. It does not
            hold the device itself.
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

    @property
    def main_container(self) -> str:
        """Name of the only app or sidecar container; empty if there are several or none."""
        names = [one.name for one in self.containers if one.kind in {"app", "sidecar"}]
        return names[0] if len(names) == 1 else ""


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container, or a job, that was created and has not ended.

    Attributes:
        subject: the container, with every part; for a static pod with the uid that the kubelet
            gave it. For a job, its container id is that of `job_container_id`.
        pid: pid of its first process, in the host's pid namespace; None before there is one.
        cgroup: path of its cgroup as it was requested from the runtime; empty if unknown.
        started: when its process, or the job, started; None before that.
        claims: the devices that it was given, and what the annotations of its pod say.
        info: what sinks show of a job, or of a container without a pod; None for a container of a
            pod, which other sources describe.
    """

    subject: PartialRef
    pid: int | None = None
    cgroup: str = ""
    started: Instant | None = None
    claims: tuple[Claim, ...] = ()
    info: PodInfo | None = None
