"""Device nodes of GPUs, numbered as the driver's are; no driver is behind them."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

_NVIDIA = 195
"""The major number of GPUs."""


def make(minors: Mapping[str, int], folder: Path) -> dict[str, Mapping[str, str]]:
    """Make a node in the folder for each device.

    Args:
        minors: minor numbers by device.
        folder: is made, too.

    Returns:
        By device, how the kubelet's and the runtime's APIs ask for its node in a container.
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
