"""NVLinks of a GPU: connections to other GPUs, and the fabric, as the driver reports them.

On a Hopper GPU, each call for the state or the remote device of a link takes up to 1 ms.
"""

import ctypes
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import Level
from sources.nvml import codes
from sources.nvml.library import Handle, Library

MAX_LINKS: Final = 36
"""NVMLNVLINK_MAX_LINKS of the newest header; an older driver refuses numbers it does not know."""

_GPU, _SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t
NVLINK: Final = 2
"""NVLinks in nvmlGpuP2PCapsIndex_t."""

_P2P_UNKNOWN: Final = 6  # nvmlGpuP2PStatus_t
REGISTERED: Final = 3
"""NVML_GPU_FABRIC_STATE_COMPLETED."""


@dataclass(frozen=True, slots=True)
class Links:
    """A GPU's active NVLinks, by the devices at their other ends.

    Attributes:
        switched: number of links to an NVSwitch.
        direct: number of links to another device, by its PCI bus id in lower case.
        unknown_remote: number of links whose other end the driver does not report.
    """

    switched: int
    direct: Mapping[str, int]
    unknown_remote: int

    @property
    def active(self) -> int:
        """The number of active links."""
        return self.switched + sum(self.direct.values()) + self.unknown_remote


def read_links(nvml: Library, handle: Handle) -> Links | None:
    """Read the links of a GPU.

    Returns:
        The links, without links if the driver supports none for this GPU. None if they are
        unknown: the driver lacks the call, or it failed.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    switched = unknown_remote = 0
    direct: Counter[str] = Counter()
    for link in range(MAX_LINKS):
        code, state = nvml.number("nvmlDeviceGetNvLinkState", handle, ctypes.c_uint(link))
        codes.check(code)
        if code == codes.INVALID_ARGUMENT:
            break
        if code not in (codes.OK, codes.NOT_SUPPORTED):
            return None
        if code != codes.OK or state != 1:
            continue
        code, kind = nvml.number("nvmlDeviceGetNvLinkRemoteDeviceType", handle, ctypes.c_uint(link))
        codes.check(code)
        if code == codes.OK and kind == _SWITCH:
            # Its bus id is useless: every switch leads to all GPUs, and reports FFFFFFFF:FF:FF.0.
            switched += 1
            continue
        known = code != codes.OK or kind == _GPU
        code, bus_id = nvml.remote_bus_id(handle, link) if known else (codes.NOT_FOUND, "")
        codes.check(code)
        if code == codes.OK and bus_id:
            direct[bus_id.lower()] += 1
        else:
            unknown_remote += 1
    return Links(switched, dict(direct), unknown_remote)


def nvlink_count(
    a: tuple[str, Links | None], b: tuple[str, Links | None], reachable: bool | None
) -> int | None:
    """Return how many NVLinks connect two GPUs.

    Args:
        a: PCI bus id and links of the first GPU.
        b: PCI bus id and links of the second GPU.
        reachable: whether the driver reports that they reach each other over NVLink. A GPU cannot
            distinguish separate sets of switches: if this is False, no switches connect them.

    Returns:
        The number of direct links. Without direct links, if both GPUs have links to switches: the
        number of active links of the GPU with fewer. None if it is unknown.
    """
    (bus_a, one), (bus_b, other) = a, b
    if one is None or other is None:
        known = one if one is not None else other
        return 0 if known is not None and not known.active else None
    # Both ends report the same links; a new link may be visible at one end first.
    direct = min(one.direct.get(bus_b.lower(), 0), other.direct.get(bus_a.lower(), 0))
    if direct:
        return direct
    if reachable is not False and one.switched and other.switched:
        return min(one.active, other.active)
    if reachable is not False and (one.unknown_remote or other.unknown_remote):
        return None
    return 0


def read_fabric(nvml: Library, handle: Handle) -> tuple[str, int | None]:
    """Read the NVLink fabric with which a GPU is registered.

    Returns:
        The cluster's uuid and the clique's number. The uuid is empty for the switches of a single
        node. Empty and None if the GPU is not registered, or if the driver does not report it.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    code, info = nvml.fabric(handle)
    codes.check(code)
    cluster = bytes(info.clusterUuid)
    # The state has one byte in NVML's header, four in pynvml.
    if code or info.state & 0xFF != REGISTERED or info.status:
        return "", None
    return str(uuid.UUID(bytes=cluster)) if any(cluster) else "", int(info.cliqueId)


def read_level(nvml: Library, one: Handle, other: Handle) -> tuple[int, Level | None]:
    """Read the closest common PCIe level of two GPUs; return NVML's code and the level."""
    code, number = nvml.number("nvmlDeviceGetTopologyCommonAncestor", one, other)
    if code:
        return code, None
    try:
        return code, Level(number)
    except ValueError:
        return codes.OUT_OF_RANGE, None


def read_reachable(nvml: Library, one: Handle, other: Handle) -> tuple[int, bool | None]:
    """Read whether two GPUs reach each other over NVLink; takes up to 2 ms.

    Returns:
        NVML's code, and whether they do; None if it is unknown.
    """
    code, status = nvml.number("nvmlDeviceGetP2PStatus", one, other, ctypes.c_int(NVLINK))
    return code, status == 0 if code == 0 and status < _P2P_UNKNOWN else None
