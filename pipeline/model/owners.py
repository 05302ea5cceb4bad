"""Owners: what can hold a device. A pod, a job of Slurm, or a container without a pod.

All owners share one reference, `PartialRef`, and the kind of an owner is a part of its uid:

    kind        uid                                  namespace   pod        container
    pod         the API server's or kubelet's uid    namespace   its name   its container
    job         slurm://CLUSTER/JOB/START            cluster     job id     empty
    container   docker://ID, podman://ID             empty       its name   empty

So claims, accounts, holdings and stored data need no second identity. A pod's uid never contains
`://`. A job that is requeued keeps its id and starts again, and so it is another owner. So is a
container that is created again under the same name; one that is restarted stays the same.
"""

from typing import Final, Literal, TypeAlias

OwnerKind: TypeAlias = Literal["pod", "job", "container"]
"""What kind of owner holds a device."""

ContainerRuntime: TypeAlias = Literal["docker", "podman"]
"""A runtime that starts containers without a pod."""

_SCHEME_END: Final = "://"
_KINDS: Final[dict[str, OwnerKind]] = {"slurm": "job", "docker": "container", "podman": "container"}

JOB_FACTS: Final = ("account", "job_name", "partition", "user")
"""Labels of a job's `PodInfo`, sorted."""

CONTAINER_FACTS: Final = ("compose_project", "compose_service", "image")
"""Labels of the `PodInfo` of a container without a pod, sorted."""


def owner_kind(uid: str) -> OwnerKind:
    """Return the kind of the owner with a uid, or with a container id; `pod` for an empty one."""
    scheme, end, _ = uid.partition(_SCHEME_END)
    return _KINDS.get(scheme, "pod") if end else "pod"


def uid_prefixes(kind: OwnerKind) -> tuple[str, ...]:
    """Return how the uids of a kind of owner begin; nothing for pods, whose uids have no prefix."""
    return tuple(f"{scheme}{_SCHEME_END}" for scheme, one in _KINDS.items() if one == kind)


def container_uid(runtime: ContainerRuntime, container_id: str) -> str:
    """Return the uid of a container without a pod.

    Args:
        runtime: the runtime that started it.
        container_id: the runtime's id, 64 hexadecimal digits.
    """
    return f"{runtime}{_SCHEME_END}{container_id}"


def job_uid(cluster: str, job: str, started_s: int) -> str:
    """Return the uid of a job.

    Args:
        cluster: name of the Slurm cluster.
        job: the job's id. Of a job array or a heterogeneous job: the id of the single job, which is
            unique in the cluster (`SLURM_JOB_ID`).
        started_s: when the job started, in whole Unix seconds.
    """
    return f"slurm{_SCHEME_END}{cluster}/{job}/{started_s}"


def job_container_id(job: str) -> str:
    """Return the container id of a job: all that the cgroup of a process shows of it.

    A source of jobs reports it in `RunningContainer.subject`, and `pipeline.host.cgroups` finds it
    in the paths of cgroups.
    """
    return f"slurm{_SCHEME_END}{job}"


def owner_text(namespace: str, name: str, uid: str) -> str:
    """Return a text that names an owner, for people.

    `NAMESPACE/POD`; `job 1234`; `container NAME`. The uid where the name is unknown.
    """
    if not name:
        return uid
    kind = owner_kind(uid)
    return f"{namespace}/{name}" if kind == "pod" else f"{kind} {name}"
