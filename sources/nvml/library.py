"""Access to NVML: the only module that imports pynvml.

pynvml loads the library, defines the structs and raises the errors of initialisation. Readers
bypass its wrappers, which allocate and convert at each call: they call the C functions with
arguments that are bound once. Such a call returns NVML's code and writes its value into a box.
"""

import contextlib
import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

import pynvml

from pipeline.base.errors import TransientError
from pipeline.host.shared_libraries import NoLibraryFileError, ready
from sources.nvml import codes

Call: TypeAlias = Callable[[], int]
Handle: TypeAlias = Any
"""A device handle: a ctypes pointer."""

Struct: TypeAlias = Any
"""A struct of NVML, with NVML's names of its members; pynvml has no types."""

SONAME: Final = "libnvidia-ml.so.1"
_REPEATED: Final = frozenset({codes.UNINITIALIZED, codes.LIB_RM_VERSION_MISMATCH, codes.UNKNOWN})
_TEXT_SIZE: Final = 96  # the largest of NVML's text buffers


ENGINES: Final = ("nvdec", "nvjpg", "nvofa")
"""Kinds of engines of which a GPU may have several, numbered from 0."""

XID_EVENT: Final = int(pynvml.nvmlEventTypeXidCriticalError)

# The index is nvmlValueType_t.
_VALUE_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _plain(kind: Any) -> Any:
    """Return the same struct without pynvml's attribute hooks, which cost more than most calls."""
    return type(kind.__name__, (ctypes.Structure,), {"_fields_": kind._fields_})


def _versioned(kind: Any, version: int) -> Callable[[], Any]:
    """Return a function that creates such a struct for a call that checks its version."""
    plain = _plain(kind)

    def make() -> Any:
        box = plain()
        box.version = version
        return box

    return make


class _PlatformInfo(ctypes.Structure):
    """`nvmlPlatformInfo_v2_t`; pynvml has characters instead of its numbers."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("ibGuid", ctypes.c_ubyte * 16),
        ("chassisSerialNumber", ctypes.c_ubyte * 16),
        ("slotNumber", ctypes.c_ubyte),
        ("trayIndex", ctypes.c_ubyte),
        ("hostId", ctypes.c_ubyte),
        ("peerType", ctypes.c_ubyte),
        ("moduleId", ctypes.c_ubyte),
    )


Bar1Memory: Final = _plain(pynvml.c_nvmlBAR1Memory_t)
Device: Final[Any] = pynvml.c_nvmlDevice_t
EventData: Final = _plain(pynvml.c_nvmlEventData_t)
EventSet: Final[Any] = pynvml.c_nvmlEventSet_t
FABRIC_INFO: Final = (
    _versioned(pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlGpuFabricInfo_v3),
    _versioned(pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.nvmlGpuFabricInfo_v2),
)
"""Create the structs of `nvmlDeviceGetGpuFabricInfoV`, the newest version first."""

Licence: Final[Any] = pynvml.c_nvmlGridLicensableFeatures_v4_t
MarginTemperature: Final = _versioned(
    pynvml.c_nvmlMarginTemperature_v1_t, pynvml.nvmlMarginTemperature_v1
)
PciInfo: Final = _plain(pynvml.nvmlPciInfo_t)
PlatformInfo: Final = _versioned(_PlatformInfo, pynvml.nvmlPlatformInfo_v2)
ProcessInfo: Final = _plain(pynvml.c_nvmlProcessInfo_v3_t)
ProcessUtilization: Final = _plain(pynvml.c_nvmlProcessUtilizationSample_t)
RowRemapperHistogram: Final = _plain(pynvml.c_nvmlRowRemapperHistogramValues)
SramErrorStatus: Final = _versioned(
    pynvml.c_nvmlEccSramErrorStatus_v1_t, pynvml.nvmlEccSramErrorStatus_v1
)
Utilization: Final = _plain(pynvml.c_nvmlUtilization_t)
_MEMORY_V1: Final = _plain(pynvml.c_nvmlMemory_t)
_MEMORY_V2: Final = _plain(pynvml.c_nvmlMemory_v2_t)
_FIELD_VALUE: Final = _plain(pynvml.c_nvmlFieldValue_t)
_GPM_SUPPORT: Final = _plain(pynvml.c_nvmlGpmSupport_t)
_GPM_METRIC: Final = _plain(pynvml.c_nvmlGpmMetric_t)


class _GpmMetrics(ctypes.Structure):
    _fields_ = [
        *pynvml.c_nvmlGpmMetricsGet_t._fields_[:-1],
        ("metrics", _GPM_METRIC * pynvml.NVML_GPM_METRIC_MAX),
    ]


SAMPLE_SIZE: Final = ctypes.sizeof(pynvml.c_nvmlSample_t)
"""Size in bytes of a sample that the driver takes: its time in microseconds, and its value."""


class Buffer:
    """A GPM buffer for one sample. After its last reference is gone, its memory is used again.

    Attributes:
        box: NVML's buffer.
    """

    def __init__(self, box: Any, release: Callable[[Any], None]) -> None:
        self.box = box
        self._release = release

    def __del__(self) -> None:
        self._release(self.box)


class Buffers:
    """The buffers of one initialisation of NVML.

    A thread that hangs in the driver keeps a reference to its buffers, so they are neither freed
    nor used again during its call. The last reference may be released on any thread, even that of
    the event loop, which must not call NVML. So unused buffers are kept until NVML is shut down.

    Args:
        make: creates an empty `nvmlGpmSample_t`.
        call: calls a function of NVML and returns its code.
    """

    def __init__(self, make: Callable[[], Any], call: Callable[..., int]) -> None:
        self._make = make
        self._call = call
        self._allocated: list[Any] = []
        self._unused: deque[Any] = deque()

    def new(self) -> tuple[int, Buffer | None]:
        """Return NVML's code, and an unused or a new buffer; None if the code is not 0."""
        try:
            box = self._unused.pop()
        except IndexError:
            box = self._make()
            if code := self._call("nvmlGpmSampleAlloc", ctypes.byref(box)):
                return code, None
            self._allocated.append(box)
        return codes.OK, Buffer(box, self._unused.append)

    def clear(self) -> None:
        """Free all buffers. No buffer may be in use now or later."""
        for box in self._allocated:
            self._call("nvmlGpmSampleFree", box)


class Library:
    """The NVML library, which `open` initialises and `close` shuts down.

    Every method except `invalidate` may block for any time.

    Attributes:
        buffers: the GPM buffers of this initialisation.
    """

    def __init__(self) -> None:
        self._open = False
        self._is_invalid = False
        self.buffers = Buffers(pynvml.c_nvmlGpmSample_t, self.call)

    def invalidate(self) -> None:
        """Note that the driver went away: the next `open` initialises NVML again."""
        self._is_invalid = True

    def open(self) -> None:
        """Load and initialise NVML, unless it is initialised and valid.

        Raises:
            TransientError: NVML cannot be opened; the text says why and what to do.
            DriverGoneError: NVML reports a code that it also reports after the driver was removed
                or reloaded in use.
        """
        if self._open and self._is_invalid:
            # A thread may still be in the driver with a buffer, so no buffer is freed.
            self._shutdown()
        if self._open:
            return
        try:
            if pynvml.nvmlLib is None:
                ready(SONAME)  # reads the file without the GIL, which pynvml holds while loading
            pynvml.nvmlInitWithFlags(0)
        except NoLibraryFileError as error:
            raise TransientError(
                f"cannot load NVML: {error}; check what is mounted at this path"
            ) from error
        except pynvml.NVMLError as error:
            code = int(error.value)
            fix = codes.OPENING.get(code, "see the kernel log (dmesg) for NVRM messages")
            text = f"cannot initialise NVML ({codes.name(code)}): {fix}"
            if code in _REPEATED:
                raise codes.DriverGoneError(code, text) from error
            raise TransientError(text) from error
        self._open, self._is_invalid = True, False
        self.buffers = Buffers(pynvml.c_nvmlGpmSample_t, self.call)

    def close(self) -> None:
        """Free all buffers and shut NVML down, if it is initialised. No thread may be in NVML."""
        if self._open:
            self.buffers.clear()
            self._shutdown()

    def _shutdown(self) -> None:
        self._open = False
        # This fails if the driver went away; then there is nothing to close.
        self.call("nvmlShutdown")

    def function(self, *names: str) -> Callable[..., int]:
        """Return the first of these functions that the library has.

        If it has none, return one that only returns `FUNCTION_NOT_FOUND`.
        """
        for name in names:
            with contextlib.suppress(pynvml.NVMLError):
                return cast("Callable[..., int]", pynvml._nvmlGetFunctionPointer(name))  # noqa: SLF001
        return lambda *_: codes.FUNCTION_NOT_FOUND

    def bind(self, names: str | Sequence[str], *args: object) -> Call:
        """Return a call of the first function that the library has, with bound arguments."""
        return partial(self.function(*([names] if isinstance(names, str) else names)), *args)

    def call(self, names: str | Sequence[str], *args: object) -> int:
        """Call a function once and return NVML's code."""
        return self.bind(names, *args)()

    def text(self, name: str, *args: object) -> tuple[int, str]:
        """Query a text; return NVML's code and the text."""
        buffer = ctypes.create_string_buffer(_TEXT_SIZE)
        # The only function that does not take the size.
        sizes = [] if name == "nvmlDeviceGetGspFirmwareVersion" else [ctypes.c_uint(_TEXT_SIZE)]
        code = self.call(name, *args, buffer, *sizes)
        return code, buffer.value.decode(errors="replace")

    def number(self, name: str | Sequence[str], *args: object) -> tuple[int, int]:
        """Query an unsigned int; return NVML's code and the number."""
        box = ctypes.c_uint()
        code = self.call(name, *args, ctypes.byref(box))
        return code, box.value

    def handle_at(self, index: int) -> tuple[int, Handle]:
        """Query the handle of the GPU with this index; return NVML's code and the handle."""
        handle = Device()
        code = self.call(
            ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"),
            ctypes.c_uint(index),
            ctypes.byref(handle),
        )
        return code, handle

    def pci_bus_id(self, handle: Handle) -> tuple[int, str]:
        """Query the PCI bus id; return NVML's code and the id."""
        return self._pci(("nvmlDeviceGetPciInfo_v3",), handle)

    def remote_bus_id(self, handle: Handle, link: int) -> tuple[int, str]:
        """Query the PCI bus id of the other end of an NVLink; return NVML's code and the id."""
        names = ("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo")
        return self._pci(names, handle, ctypes.c_uint(link))

    def _pci(self, names: Sequence[str], *args: object) -> tuple[int, str]:
        info = pynvml.nvmlPciInfo_t()
        code = self.call(names, *args, ctypes.byref(info))
        raw = info.busId
        return code, raw.decode() if isinstance(raw, bytes) else str(raw)

    def engines(self, handle: Handle) -> dict[str, int] | None:
        """Query how many engines of each kind a GPU has: NVDEC, NVJPG and NVOFA.

        The largest MIG profile has all engines of the GPU, whether MIG mode is on or off. The
        query takes half a millisecond for each of a dozen profiles.

        Returns:
            The counts by the names in `ENGINES`; None if the driver does not report them.

        Raises:
            DeviceLostError: the device is gone.
            DriverGoneError: the driver is gone.
        """
        found = dict.fromkeys(ENGINES, 0)
        for profile in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            info = pynvml.c_nvmlGpuInstanceProfileInfo_t()
            code = self.call(
                "nvmlDeviceGetGpuInstanceProfileInfo",
                handle,
                ctypes.c_uint(profile),
                ctypes.byref(info),
            )
            codes.check(code)
            if code == 0:
                counts = (info.decoderCount, info.jpegCount, info.ofaCount)
                for kind, count in zip(ENGINES, counts, strict=True):
                    found[kind] = max(found[kind], count)
        return found if any(found.values()) else None

    def supports_gpm(self, handle: Handle) -> tuple[int, bool]:
        """Query whether a GPU supports GPM; return NVML's code, and whether it does."""
        box = _GPM_SUPPORT()
        box.version = pynvml.NVML_GPM_SUPPORT_VERSION
        code = self.call("nvmlGpmQueryDeviceSupport", handle, ctypes.byref(box))
        return code, bool(box.isSupportedDevice)

    def first_slice(self, handle: Handle, gi: int) -> tuple[int, int]:
        """Query the first memory slice of a GPU instance; return NVML's code and the slice.

        Some drivers require privileges.

        Args:
            handle: handle of the GPU.
            gi: id of the GPU instance.
        """
        instance, info = pynvml.c_nvmlGpuInstance_t(), pynvml.c_nvmlGpuInstanceInfo_t()
        code = self.call(
            "nvmlDeviceGetGpuInstanceById", handle, ctypes.c_uint(gi), ctypes.byref(instance)
        ) or self.call("nvmlGpuInstanceGetInfo", instance, ctypes.byref(info))
        return code, info.placement.start

    def fabric(self, handle: Handle) -> tuple[int, Struct]:
        """Query the NVLink fabric of a GPU, with the newest call that the driver has.

        Returns:
            NVML's code, and the struct of that call.
        """
        info = pynvml.c_nvmlGpuFabricInfo_v2_t()
        info.version = pynvml.nvmlGpuFabricInfo_v2
        code = self.call("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
        if code in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
            info = pynvml.c_nvmlGpuFabricInfo_t()
            code = self.call("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info))
        return code, info

    def attributes(self, handle: Handle) -> tuple[int, Struct]:
        """Query the slices and the memory of a MIG instance; return NVML's code and the struct."""
        attributes = pynvml.c_nvmlDeviceAttributes()
        code = self.call("nvmlDeviceGetAttributes_v2", handle, ctypes.byref(attributes))
        return code, attributes


def address(handle: Handle) -> int:
    """Return the memory address in a handle: it identifies the device until NVML is reopened."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def memory_box(version: int) -> Any:
    """Create an `nvmlMemory_t` of version 1 or 2."""
    if version == 1:
        return _MEMORY_V1()
    box = _MEMORY_V2()
    box.version = int(pynvml.nvmlMemory_v2)
    return box


UNANSWERED: Final = 0xFFFF_FFFF
"""A code that NVML does not have: a call that succeeds may leave a field value as it was."""


def field_values(*requested: tuple[int, int]) -> Any:
    """Create an array of `nvmlFieldValue_t` for these field ids and scopes, without answers."""
    values = (_FIELD_VALUE * len(requested))()
    for value, (number, scope) in zip(values, requested, strict=True):
        value.fieldId, value.scopeId, value.nvmlReturn = number, scope, UNANSWERED
    return values


def field_number(value: Struct) -> int | float | None:
    """Return the number in a field value; None if its type is unknown."""
    if value.valueType >= len(_VALUE_MEMBERS):
        return None
    return cast("int | float", getattr(value.value, _VALUE_MEMBERS[value.valueType]))


def gpm_metrics_box(ids: Sequence[int]) -> tuple[Any, list[Struct]]:
    """Create a request for these metrics; return it, and its part for each metric.

    The caller sets `sample1` and `sample2` of the request.
    """
    box = _GpmMetrics()
    box.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    box.numMetrics = len(ids)
    metrics: list[Struct] = [box.metrics[place] for place in range(len(ids))]
    for metric, number in zip(metrics, ids, strict=True):
        metric.metricId = number
    return box, metrics
