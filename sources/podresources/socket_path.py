"""Find the socket at a path."""

import os
import stat
from pathlib import Path
from typing import TypeAlias

_ABSENT = (
    "no such socket; mount the kubelet's pod-resources folder from the host, "
    "and set `sockets` if the kubelet has another root"
)

SocketId: TypeAlias = tuple[int, int, int] | str
"""Inode, device and time of the last change (ns, wall clock) of a socket; or why there is none."""


def find_socket(path: Path) -> SocketId:
    """Return the identity of the socket at a path, or why there is none. Blocking."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return f"{path}: {_ABSENT}"
    except PermissionError:
        return f"{path}: permission denied to uid {os.geteuid()}"
    except OSError as error:
        return f"{path}: {os.strerror(error.errno or 0).lower()}"
    if not stat.S_ISSOCK(found.st_mode):
        return f"{path}: is not a socket"
    return found.st_ino, found.st_dev, found.st_ctime_ns
