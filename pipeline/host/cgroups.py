"""Whose a process is, by the cgroup that the kernel shows it in: `/proc/PID/cgroup`.

The kubelet makes a cgroup for each pod with the pod's uid in its name, and the container runtime
one below it for each container, with the container's id. How they are written depends on the
cgroup driver, the runtime and where the kubelet's own root is; the two ids are there in any case.
"""

import re
from typing import Final

from pipeline.model import PartialRef

NO_CONTAINER: Final = PartialRef()
"""The owner of a process outside all pods."""

_HEX: Final = "[0-9a-f]"
_POD: Final = re.compile(
    # What stands before it, up to "pod": nothing, or the slices above with a dash behind.
    rf"(?:.*-)?pod({_HEX}{{8}}([-_]){_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{12}}|{_HEX}{{32}})"
    r"(?:\.slice)?"
)
_CONTAINER: Final = re.compile(
    rf"(?:(?:cri-containerd|crio|docker|libpod)-)?({_HEX}{{64}})(?:\.scope)?"
)
_DELETED: Final = " (deleted)"
"""What the kernel writes behind the path of a cgroup that was removed under its process."""

_ESCAPED_DASH: Final = "\\x2d"  # as systemd writes one in the names of units


def container_of(text: str) -> PartialRef | None:
    """Read to whom a process belongs.

    Both versions of cgroups are understood, and machines that have both; kubelets that use systemd
    or none, below roots of any name; containerd, CRI-O, docker and podman. What stands below a
    container's own cgroup is the container's too. Read from within a cgroup namespace of its own,
    a sibling in the reader's pod has a container id alone.

    Args:
        text: of `/proc/PID/cgroup`: lines of `id:controllers:path`.

    Returns:
        Uid and container id, as far as they stand there; `NO_CONTAINER` where the process is
        outside all pods; None where the text tells of no cgroup.
    """
    found: list[PartialRef] = [_owner(path) for path in _paths(text)]
    if not found:
        return None
    # Most machines with both versions say the same on each line; some on those of version 1 alone.
    return max(found, key=lambda ref: (bool(ref.uid), bool(ref.container_id)))


def is_root(text: str) -> bool:
    """Whether a process stands at the root of all cgroups that the reader can see.

    Of the reader itself that means a cgroup namespace of its own, or a machine that sorts its
    processes into no cgroups.
    """
    paths = _paths(text)
    return bool(paths) and all(path == "/" for path in paths)


def names_container(text: str) -> bool:
    """Whether a process stands in a container, be that of a pod or not."""
    return any(
        _POD.fullmatch(name) or _CONTAINER.fullmatch(name)
        for path in _paths(text)
        for name in _names(path)
    )


def _paths(text: str) -> list[str]:
    lines = (line.split(":", 2) for line in text.split("\n"))
    return [parts[2].removesuffix(_DELETED) for parts in lines if len(parts) == 3 and parts[2]]


def _names(path: str) -> list[str]:
    # A runtime without systemd below a kubelet with it names a cgroup SLICE:PREFIX:ID.
    return re.split("[/:]", path.replace(_ESCAPED_DASH, "-"))


def _owner(path: str) -> PartialRef:
    names = _names(path)
    for place, name in enumerate(names):
        if pod := _POD.fullmatch(name):
            return PartialRef(
                uid=pod[1].replace("_", "-"), container_id=_container(names[place + 1 :])
            )
    # The reader's own pod, seen from its cgroup namespace: one step up, then another container.
    if names[:2] == ["", ".."] and len(names) > 2:
        return PartialRef(container_id=_container(names[2:3]))
    return NO_CONTAINER


def _container(names: list[str]) -> str:
    """Return the first container id: what follows is in that container."""
    return next((found[1] for name in names if (found := _CONTAINER.fullmatch(name))), "")
