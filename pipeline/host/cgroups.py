"""Finds the container or job of a process by its cgroup, in `/proc/PID/cgroup`.

The kubelet creates a cgroup for each pod with the pod's UID in its name. The container runtime
creates one below it for each container, with the container's id. The notation depends on the cgroup
driver, the runtime and the kubelet's cgroup root; both ids are always there.

Docker and Podman create a cgroup with the container's id, which is in no pod. Slurm creates one
with the job's id below its own cgroup.
"""

import re
from typing import Final

from pipeline.model import PartialRef, container_uid, job_container_id

NO_CONTAINER: Final = PartialRef()
"""The owner of a process that is in no container and no job."""

_HEX: Final = "[0-9a-f]"
_POD: Final = re.compile(
    # The part before "pod" is empty, or the names of the slices above followed by a dash.
    rf"(?:.*-)?pod({_HEX}{{8}}([-_]){_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{12}}|{_HEX}{{32}})"
    r"(?:\.slice)?"
)
_CONTAINER: Final = re.compile(
    rf"(?:(?:cri-containerd|crio|docker|libpod)-)?({_HEX}{{64}})(?:\.scope)?"
)
_PODLESS: Final = re.compile(rf"(docker|libpod)-({_HEX}{{64}})(?:\.scope)?")
_DOCKER_PARENT: Final = "docker"
"""The cgroup above those of Docker's containers on a machine without systemd."""
_SLURM: Final = re.compile(r"slurm(?:_.+)?|(?:.+_)?slurmstepd\.scope")
_JOB: Final = re.compile(r"job_([0-9]{1,10})")
_OF_A_USER: Final = re.compile(r"user@[0-9]+\.service")
"""Below this cgroup of systemd, a user makes cgroups with any name, and moves processes there."""
_DELEGATED: Final = (".service", ".scope")
"""Ends of names of cgroups below which a service, a session or a container may make cgroups."""
_DELETED: Final = " (deleted)"
"""The kernel appends this to the path of a cgroup that was removed while its process runs."""

_ESCAPED_DASH: Final = "\\x2d"  # systemd's notation of a dash in unit names


def container_of(text: str) -> PartialRef | None:
    """Return the container or job of a process.

    This supports both cgroup versions and machines with both; kubelets with and without systemd,
    and any cgroup root; containerd, CRI-O, docker and podman; Slurm. A cgroup below a container's
    cgroup belongs to that container. If podgpu has its own cgroup namespace, only the container id
    is known of another container of podgpu's pod.

    A name of a cgroup counts only where no user can make one. Below the service manager of a user,
    nothing is a pod or a job. A container, a service or a session has no jobs in it.

    Args:
        text: content of `/proc/PID/cgroup`: lines of `id:controllers:path`.

    Returns:
        Pod UID and container id, as far as they are known. Of a container without a pod its uid as
        an owner and its container id; of a job only its container id. `NO_CONTAINER` for a process
        that is in no container and no job; None if the text contains no cgroup.
    """
    # Most hybrid machines have the same path on each line; some have it on those of version 1 only.
    found = map(_owner, _paths(text))
    return max(found, key=_certainty, default=None)


def _certainty(ref: PartialRef) -> tuple[bool, bool, bool]:
    """Return how much is known. A job's container may be on lines of some controllers only."""
    return ref.kind == "job", bool(ref.uid), bool(ref.container_id)


def is_root(text: str) -> bool:
    """Return whether a process is in the root cgroup, as this process sees it.

    For this process itself, True means that it has its own cgroup namespace, or that the machine
    uses no cgroups.
    """
    paths = _paths(text)
    return bool(paths) and all(path == "/" for path in paths)


def names_container(text: str) -> bool:
    """Return whether a process is in a container, whether or not the container is of a pod."""
    return any(
        _POD.fullmatch(name) or _CONTAINER.fullmatch(name)
        for path in _paths(text)
        for name in _names(path)
    )


def _paths(text: str) -> list[str]:
    lines = (line.split(":", 2) for line in text.split("\n"))
    return [parts[2].removesuffix(_DELETED) for parts in lines if len(parts) == 3 and parts[2]]


def _names(path: str) -> list[str]:
    # A runtime without systemd, under a kubelet with systemd, writes SLICE:PREFIX:ID.
    return re.split("[/:]", path.replace(_ESCAPED_DASH, "-"))


def _owner(path: str) -> PartialRef:
    names = _names(path)
    if any(map(_OF_A_USER.fullmatch, names)):
        return _podless_container(names) or NO_CONTAINER
    for place, name in enumerate(names):
        if pod := _POD.fullmatch(name):
            return PartialRef(
                uid=pod[1].replace("_", "-"), container_id=_container(names[place + 1 :])
            )
    # Another container of the reader's pod, seen from the reader's cgroup namespace: `/../NAME`.
    if names[:2] == ["", ".."] and (sibling := _container(names[2:3])):
        return PartialRef(container_id=sibling)
    return _job(names) or _podless_container(names) or NO_CONTAINER


def _job(names: list[str]) -> PartialRef | None:
    """Return the job of a process; also of a container that a job started."""
    of_slurm = False
    for name in names:
        if of_slurm and (found := _JOB.fullmatch(name)):
            return PartialRef(container_id=job_container_id(found[1]))
        is_slurm = _SLURM.fullmatch(name) is not None
        if not is_slurm and (name.endswith(_DELEGATED) or _CONTAINER.fullmatch(name)):
            return None
        of_slurm = of_slurm or is_slurm
    return None


def _podless_container(names: list[str]) -> PartialRef | None:
    """Return the container of a process that is in no pod."""
    for above, name in zip(["", *names], names, strict=False):
        if found := _PODLESS.fullmatch(name):
            runtime, container_id = found.groups()
            uid = container_uid("docker" if runtime == "docker" else "podman", container_id)
            return PartialRef(uid=uid, container_id=container_id)
        if above == _DOCKER_PARENT and (found := _CONTAINER.fullmatch(name)):
            return PartialRef(uid=container_uid("docker", found[1]), container_id=found[1])
    return None


def _container(names: list[str]) -> str:
    """Return the first container id; later names are cgroups inside of that container."""
    return next((found[1] for name in names if (found := _CONTAINER.fullmatch(name))), "")
