"""Minimum, mean and maximum of the driver's own samples over a window.

The driver samples power and other quantities itself, some fifty or five times a second, into ring
buffers that hold several seconds. podgpu reads them before they wrap.
"""

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipeline.fields.statistics_fields import SAMPLED, STATISTICS_OF
from pipeline.model import NS, Instant, Reading
from sources.nvml import codes, library
from sources.nvml.library import Call, Handle, Library
from sources.nvml.sample_series import Series
from sources.nvml.targets import GpuReadings

_MAX_FILL: Final = 0.7
"""The part of a ring that may fill before it is read again; the rest is for late threads."""

_MIN_INTERVAL_NS: Final = NS // 10
_EMPTY_RETRY_NS: Final = 10 * NS
"""How long an empty ring is not read, such as those of clocks on Hopper."""

_MAX_SIZE: Final = 1 << 16
_US: Final = 1000  # nanoseconds

# A time stamp and a value of eight bytes; the index is nvmlValueType_t.
_FORMATS: Final = tuple(
    struct.Struct("=Q" + value) for value in ("d", "I4x", "Q", "Q", "q", "i4x", "H6x")
)

# By unit: the largest possible value, and the divisor of NVML's value.
_LIMITS: Final = {"watts": (100_000_000, 1000), "percent": (100, 1), "mhz": (50_000, 1)}


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the quantities that the driver samples.

    Attributes:
        number: NVML's sampling type.
        fields: names of the fields for minimum, mean and maximum; None if not requested.
        max_value: the largest possible value, in NVML's unit.
        divisor: divides NVML's value to convert it to the unit of the fields.
    """

    number: int
    fields: tuple[str | None, ...]
    max_value: int
    divisor: int


class Ring:
    """Reads one ring of one GPU and returns the statistics of its window.

    Args:
        nvml: the library.
        handle: of the GPU.
        kind: which ring.
        target: uuid of the GPU, and how long its readings are valid.
        window_ns: length of the window.
        now: returns the current time.

    Attributes:
        due_ns: when it must be read again so that no sample is lost, by the monotonic clock;
            infinite if unknown.
    """

    def __init__(
        self,
        nvml: Library,
        handle: Handle,
        kind: Kind,
        target: tuple[str, int],
        *,
        window_ns: int,
        now: Callable[[], Instant],
    ) -> None:
        self.due_ns: float = math.inf
        self._nvml = nvml
        self._kind = kind
        self._target = target
        self._now = now
        self._series = Series(window_ns // _US, kind.max_value)
        self._last_new_at = now()
        self._retry_ns = 0
        self._size = self._capacity = 0
        self._type, self._count = ctypes.c_uint(), ctypes.c_uint()
        self._samples = ctypes.create_string_buffer(0)
        # Read all samples each time, which takes as long as reading only new ones: no sample is
        # missed after the clock was set back, and the spacing is known.
        since = ctypes.c_ulonglong(0)
        self._args = (
            handle,
            ctypes.c_uint(kind.number),
            since,
            ctypes.byref(self._type),
            ctypes.byref(self._count),
        )
        self._call: Call | None = None

    def read(self, result: GpuReadings, _at: Instant) -> int:
        """Read new samples, and append the statistics of the window. A `Reader`."""
        at = self._now()
        code = self.drain()
        if code:
            return code
        found = self._series.summary((at.mono_ns - self._last_new_at.mono_ns) // _US)
        if found is not None:
            summary, reach = found
            uuid, valid_ns = self._target
            start = Instant(at.mono_ns - reach * _US, at.wall_ns - reach * _US)
            divisor = self._kind.divisor
            values = (summary.minimum, summary.mean, summary.maximum)
            for field, value in zip(self._kind.fields, values, strict=True):
                if field is not None:
                    converted = value if divisor == 1 else value / divisor
                    result.append(Reading(uuid, field, (), converted, start, at, valid_ns))
        implausible, self._series.has_implausible = self._series.has_implausible, False
        return codes.OUT_OF_RANGE if implausible else code

    def drain(self) -> int:
        """Read new samples; return NVML's code."""
        self.due_ns = math.inf
        at = self._now()
        if at.mono_ns < self._retry_ns:
            return codes.NOT_CALLED
        code = self._fetch()
        size = min(self._count.value, self._size) * library.SAMPLE_SIZE
        if code == codes.NOT_FOUND or (code == codes.OK and not size):
            self._retry_ns = at.mono_ns + _EMPTY_RETRY_NS
            return codes.NOT_FOUND
        if code:
            return code
        if self._type.value >= len(_FORMATS):
            return codes.NOT_SUPPORTED
        raw = ctypes.string_at(self._samples, size)
        series = self._series
        if series.add_ring(sorted(_FORMATS[self._type.value].iter_unpack(raw))):
            self._last_new_at = at
        if series.wrapped_samples is not None:
            # The ring holds less than the driver reported, or the thread was late.
            self._capacity, series.wrapped_samples = (
                min(self._capacity, series.wrapped_samples),
                None,
            )
        if series.spacing:
            delay_ns = round(_MAX_FILL * series.spacing * self._capacity * _US)
            self.due_ns = at.mono_ns + max(_MIN_INTERVAL_NS, delay_ns)
        return code

    def _fetch(self) -> int:
        """Read the whole ring into an array that grows as required."""
        while True:
            if self._call is None:
                code = self._allocate()
                if code:
                    return code
            self._count.value = self._size
            code = codes.FUNCTION_NOT_FOUND if self._call is None else self._call()
            if code != codes.INSUFFICIENT_SIZE or self._size >= _MAX_SIZE:
                return code
            self._call = None

    def _allocate(self) -> int:
        code = self._nvml.call("nvmlDeviceGetSamples", *self._args, None)
        if code == 0:
            self._capacity = self._count.value
            # Always more than before; otherwise a driver that reports too few would loop here.
            self._size = min(_MAX_SIZE, max(self._capacity, self._size * 2, 1))
            self._samples = ctypes.create_string_buffer(self._size * library.SAMPLE_SIZE)
            self._call = self._nvml.bind("nvmlDeviceGetSamples", *self._args, self._samples)
        return code

    def reset(self) -> None:
        """Start from zero: the GPU was away."""
        self.due_ns = math.inf
        self._retry_ns = 0
        self._series.reset()


def rings(
    nvml: Library,
    handle: Handle,
    target: tuple[str, int],
    wanted: frozenset[str],
    *,
    window_ns: int,
    now: Callable[[], Instant],
) -> list[Ring]:
    """Create the requested rings of a GPU; arguments as in `Ring`."""
    return [
        Ring(nvml, handle, kind, target, window_ns=window_ns, now=now) for kind in _kinds(wanted)
    ]


def _kinds(wanted: frozenset[str]) -> list[Kind]:
    found: list[Kind] = []
    for name, unit, number, _ in SAMPLED:
        names = (f"{name}_{which}_{unit}" for which in STATISTICS_OF)
        fields = tuple(field if field in wanted else None for field in names)
        if any(fields):
            found.append(Kind(number, fields, *_LIMITS[unit]))
    return found
