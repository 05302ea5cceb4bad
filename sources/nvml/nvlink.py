"""What a GPU says of its NVLinks and its fabric, and what the driver says of two GPUs.

A state of a link, or what is at its other end, costs up to 1 ms each on a Hopper card.
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

MOST_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS of the newest header; an older driver refuses those it doesn't know."""

_GPU, _SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t
_NVLINK: Final = 2  # nvmlGpuP2PCapsIndex_t
_P2P_UNKNOWN: Final = 6  # nvmlGpuP2PStatus_t
_REGISTERED: Final = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_FABRIC_V2: Final = 0x0200_0024


class _FabricInfo(ctypes.Structure):
    """`nvmlGpuFabricInfo_t`."""

    _fields_ = (
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class _FabricInfoV2(ctypes.Structure):
    """`nvmlGpuFabricInfo_v2_t`."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *_FabricInfo._fields_,
        ("health", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class Links:
    """A GPU's active NVLinks, by what is at their other ends.

    Attributes:
        switched: those that lead to an NVSwitch.
        direct: those that lead to another device, by its PCI bus id in lower case.
        unknown_remote: those of which the driver doesn't say where they lead.
    """

    switched: int = 0
    direct: Mapping[str, int] | None = None
    unknown_remote: int = 0

    @property
    def active(self) -> int:
        """All of them."""
        return self.switched + sum((self.direct or {}).values()) + self.unknown_remote


def read_links(nvml: Library, handle: Handle) -> Links | None:
    """Ask for the links of a GPU.

    Returns:
        None if that can't be told: the driver lacks the call, or it failed. A GPU of which the
        driver says that it supports none has none.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    switched = astray = 0
    direct: Counter[str] = Counter()
    for link in range(MOST_LINKS):
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
            # Its bus id is of no use: behind a switch is every GPU, and FFFFFFFF:FF:FF.0 is told.
            switched += 1
            continue
        known = code != codes.OK or kind == _GPU
        code, bus_id = nvml.remote_bus_id(handle, link) if known else (codes.NOT_FOUND, "")
        codes.check(code)
        if code == codes.OK and bus_id:
            direct[bus_id.lower()] += 1
        else:
            astray += 1
    return Links(switched, dict(direct), astray)


def nvlink_count(
    a: tuple[str, Links | None], b: tuple[str, Links | None], reachable: bool | None
) -> int | None:
    """Return how many NVLinks two GPUs have to each other.

    Args:
        a: PCI bus id of the one, and its links.
        b: likewise of the other.
        reachable: whether the driver lets them reach each other over NVLink. Two sets of switches
            look like one from a GPU: if it says no, nothing joins them through switches.

    Returns:
        Direct links, or through switches as many as the one with fewer has; None when unknown.
    """
    (bus_a, one), (bus_b, other) = a, b
    if one is None or other is None:
        known = one if one is not None else other
        return 0 if known is not None and not known.active else None
    # Each end tells of the same links; one that is coming up may be seen at one end first.
    direct = min(_towards(one, bus_b), _towards(other, bus_a))
    if direct:
        return direct
    if reachable is not False and one.switched and other.switched:
        return min(one.active, other.active)
    if reachable is not False and (one.unknown_remote or other.unknown_remote):
        return None
    return 0


def _towards(ends: Links, bus_id: str) -> int:
    return (ends.direct or {}).get(bus_id.lower(), 0)


def read_fabric(nvml: Library, handle: Handle) -> tuple[str, int | None]:
    """Ask for the NVLink fabric that a GPU is registered with.

    Returns:
        The cluster's uuid, empty for the switches of a single node, which have none, and the
        clique's number; empty and None where it isn't registered.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    newer = _FabricInfoV2(version=_FABRIC_V2)
    info: _FabricInfo | _FabricInfoV2 = newer
    code = nvml.ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(newer))
    if code in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
        info = _FabricInfo()
        code = nvml.ask("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info))
    codes.check(code)
    cluster = bytes(info.cluster)
    if code or info.state != _REGISTERED or info.status:
        return "", None
    return str(uuid.UUID(bytes=cluster)) if any(cluster) else "", int(info.clique)


def read_level(nvml: Library, one: Handle, other: Handle) -> tuple[int, Level | None]:
    """Ask for the closest thing that two GPUs have in common; None for a level nobody knows."""
    code, number = nvml.number("nvmlDeviceGetTopologyCommonAncestor", one, other)
    if code:
        return code, None
    try:
        return code, Level(number)
    except ValueError:
        return codes.OUT_OF_RANGE, None


def read_reachable(nvml: Library, one: Handle, other: Handle) -> tuple[int, bool | None]:
    """Ask whether two GPUs reach each other over NVLink; it costs up to 2 ms."""
    code, status = nvml.number("nvmlDeviceGetP2PStatus", one, other, ctypes.c_int(_NVLINK))
    return code, status == 0 if code == 0 and status < _P2P_UNKNOWN else None
