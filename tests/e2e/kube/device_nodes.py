"""Create device nodes with the numbers of NVIDIA GPUs, without a driver."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

_NVIDIA = 195
"""The major device number of NVIDIA GPUs."""


def make(minors: Mapping[str, int], folder: Path) -> dict[str, Mapping[str, str]]:
    """Create a device node in a folder for each device.

    Args:
        minors: minor numbers by device.
        folder: folder to create.

    Returns:
        By device, its node in the form of the kubelet's and the runtime's APIs.
    """
    folder.mkdir()
    wanted: dict[str, Mapping[str, str]] = {}
    for device, minor in minors.items():
        host = folder / f"nvidia{minor}"
        os.mknod(host, stat.S_IFCHR | 0o666, os.makedev(_NVIDIA, minor))
        wanted[device] = {
            "container_path": f"/dev/{host.name}",
            "host_path": str(host),
            "permissions": "rw",
        }
    return wanted
