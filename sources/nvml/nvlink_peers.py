"""Whether GPUs reach each other over NVLink."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from pipeline.model import Instant, Reading
from sources.nvml import codes
from sources.nvml.library import Handle, Library
from sources.nvml.readers import GpuReadings, Reader

_NVLINK: Final = 2  # nvmlGpuP2PCapsIndex_t

# By nvmlGpuP2PStatus_t, in dcgm-exporter's words.
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
        """Its uuid."""

    @property
    def is_idle(self) -> bool:
        """Whether it is up and nobody is in the driver with it."""


Peers: TypeAlias = Callable[[], Mapping[int, Peer]]
"""Returns the GPUs that are open now, by index."""


def status(
    nvml: Library, handle: Handle, target: tuple[str, str, int], peers: Peers
) -> Reader | None:
    """Read for each other GPU whether it is reached; it costs some 2 ms each."""
    function = nvml.function("nvmlDeviceGetP2PStatus")
    if function is None:
        return None
    keep = function
    box = ctypes.c_uint()
    uuid, field, good = target

    def read(sheet: GpuReadings, at: Instant) -> int:
        has_some, alone = False, True
        # One that is down, or has a thread stuck in it, may hang, and this GPU would be blamed.
        for index, peer in peers().items():
            if peer.uuid == uuid or not peer.is_idle:
                continue
            alone = False
            code = keep(handle, peer.handle, ctypes.c_int(_NVLINK), ctypes.byref(box))
            if code in codes.DRIVER_GONE:
                return code
            has_some |= code not in codes.UNSUPPORTED
            if code == codes.OK and box.value >= len(_STATUS):
                code = codes.OUT_OF_RANGE
            if code == codes.OK:
                attrs = (("link_status", _STATUS[box.value]), ("peer_gpu", str(index)))
                sheet.append(Reading(uuid, field, attrs, box.value, None, at, good))
            # Lost is the other one as well as this one, of which other calls tell.
            elif code not in codes.NO_READING and code not in codes.LOST:
                sheet.errors.append(code)
        return codes.UNASKED if alone else codes.OK if has_some else codes.NOT_SUPPORTED

    return read
