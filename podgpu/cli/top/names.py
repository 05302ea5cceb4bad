"""Shorten the names of pods and containers, so that they stay different. Pure."""

from typing import Final

from podgpu.cli.terminal_text import fit, middle, terminal_safe
from podgpu.cli.terminal_text import width as wide

_CONTAINER_FRACTION: Final = 3
"""A container name is omitted if it needs more than this part (1/3) of the room for the name."""

_LEAST_CONTAINER: Final = 6
"""Minimum width to which the name of a container is cut, if that of the pod is not."""


def shortened(pod: str, container: str, room: int) -> str:
    """Return the name of a pod and its container in at most the given width.

    Names of pods with the same start stay different, because they are cut in the middle. The
    container gets only a part of the room, because it has the same name in many pods.

    Args:
        pod: name of the pod.
        container: name of the container, with parentheses; or empty.
        room: the width.
    """
    pod, container = terminal_safe(pod), terminal_safe(container)
    gap = " " if pod and container else ""
    if wide(pod) + len(gap) + wide(container) <= room:
        return f"{pod}{gap}{container}"
    rest = room - wide(pod) - len(gap)
    if rest >= _LEAST_CONTAINER:
        return f"{pod}{gap}{fit(container, rest)}"
    if rest >= 0 or (wide(container) + 1) * _CONTAINER_FRACTION > room:
        return middle(pod, room)
    return f"{middle(pod, room - wide(container) - len(gap))}{gap}{container}"
