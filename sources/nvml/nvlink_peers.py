"""Which other GPUs a GPU reaches over NVLink."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from pipeline.model import Instant, Reading
from sources.nvml import codes
from sources.nvml.library import Handle, Library
from sources.nvml.readers import GpuReadings, Reader

_NVLINK: Final = 2  # nvmlGpuP2PCapsIndex_t

# The index is nvmlGpuP2PStatus_t; the texts are dcgm-exporter's.
_STATUS: Final = (
    "OK",
    "ChipsetNotSupported",
    "GPUNotSupported",
    "TopologyNotSupported",
    "DisabledByRegKey",
    "NotSupported",
    "Unknown",
)


class Peer(Protocol):
    """Another GPU."""

    handle: Handle

    @property
    def uuid(self) -> str:
        """The GPU's uuid."""

    @property
    def is_idle(self) -> bool:
        """Whether it is up and no thread is in the driver with it."""


Peers: TypeAlias = Callable[[], Mapping[int, Peer]]
"""Returns the GPUs that are open now, by index."""


def status(
    nvml: Library, handle: Handle, target: tuple[str, str, int], peers: Peers
) -> Reader | None:
    """Create a reader of the NVLink status to each other GPU; takes some 2 ms for each."""
    function = nvml.function("nvmlDeviceGetP2PStatus")
    if function is None:
        return None
    p2p_status = function
    box = ctypes.c_uint()
    uuid, field, valid_ns = target

    def read(result: GpuReadings, at: Instant) -> int:
        has_some, no_peers = False, True
        # A call with a GPU that is down or hangs may hang too, and count against this GPU.
        for index, peer in peers().items():
            if peer.uuid == uuid or not peer.is_idle:
                continue
            no_peers = False
            code = p2p_status(handle, peer.handle, ctypes.c_int(_NVLINK), ctypes.byref(box))
            if code in codes.DRIVER_GONE:
                return code
            has_some |= code not in codes.UNSUPPORTED
            if code == codes.OK and box.value >= len(_STATUS):
                code = codes.OUT_OF_RANGE
            if code == codes.OK:
                attrs = (("link_status", _STATUS[box.value]), ("peer_gpu", str(index)))
                result.append(Reading(uuid, field, attrs, box.value, None, at, valid_ns))
            # Either GPU may be lost; other calls report which.
            elif code not in codes.NO_READING and code not in codes.LOST:
                result.errors.append(code)
        return codes.NOT_CALLED if no_peers else codes.OK if has_some else codes.NOT_SUPPORTED

    return read
