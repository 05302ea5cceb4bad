"""Finds the pod and container of a process by its cgroup, in `/proc/PID/cgroup`.

The kubelet creates a cgroup for each pod with the pod's UID in its name. The container runtime
creates one below it for each container, with the container's id. The notation depends on the cgroup
driver, the runtime and the kubelet's cgroup root; both ids are always there.
"""

import re
from typing import Final

from pipeline.model import PartialRef

NO_CONTAINER: Final = PartialRef()
"""The owner of a process that is not in a pod."""

_HEX: Final = "[0-9a-f]"
_POD: Final = re.compile(
    # The part before "pod" is empty, or the names of the slices above followed by a dash.
    rf"(?:.*-)?pod({_HEX}{{8}}([-_]){_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{12}}|{_HEX}{{32}})"
    r"(?:\.slice)?"
)
_CONTAINER: Final = re.compile(
    rf"(?:(?:cri-containerd|crio|docker|libpod)-)?({_HEX}{{64}})(?:\.scope)?"
)
_DELETED: Final = " (deleted)"
"""The kernel appends this to the path of a cgroup that was removed while its process runs."""

_ESCAPED_DASH: Final = "\\x2d"  # systemd's notation of a dash in unit names


def container_of(text: str) -> PartialRef | None:
    """Return the pod and container of a process.

    This supports both cgroup versions and machines with both; kubelets with and without systemd,
    and any cgroup root; containerd, CRI-O, docker and podman. A cgroup below a container's cgroup
    belongs to that container. If podgpu has its own cgroup namespace, only the container id is
    known of another container of podgpu's pod.

    Args:
        text: content of `/proc/PID/cgroup`: lines of `id:controllers:path`.

    Returns:
        Pod UID and container id, as far as they are known; `NO_CONTAINER` for a process that is not
        in a pod; None if the text contains no cgroup.
    """
    # Most hybrid machines have the same path on each line; some have it on those of version 1 only.
    found = map(_owner, _paths(text))
    return max(found, key=lambda ref: (bool(ref.uid), bool(ref.container_id)), default=None)


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
    for place, name in enumerate(names):
        if pod := _POD.fullmatch(name):
            return PartialRef(
                uid=pod[1].replace("_", "-"), container_id=_container(names[place + 1 :])
            )
    # Another container of the reader's pod, seen from the reader's cgroup namespace: `/../NAME`.
    if names[:2] == ["", ".."] and len(names) > 2:
        return PartialRef(container_id=_container(names[2:3]))
    return NO_CONTAINER


def _container(names: list[str]) -> str:
    """Return the first container id; later names are cgroups inside of that container."""
    return next((found[1] for name in names if (found := _CONTAINER.fullmatch(name))), "")
