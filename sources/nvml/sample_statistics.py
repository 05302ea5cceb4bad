"""Minimum, mean and maximum of the driver's own samples over a window.

The driver samples power and other quantities itself, some fifty or five times a second, into ring
buffers that hold several seconds. podgpu reads them before they wrap.
"""

import ctypes
import math
import struct
from collections.abc import Sequence
from functools import partial
from typing import Final

from pipeline.fields.statistics_fields import SAMPLED, STATISTICS_OF
from pipeline.model import NS, Instant
from sources.nvml import codes, library
from sources.nvml.library import Call
from sources.nvml.reader_parts import FieldOutput, GpuReadings, ReadTarget
from sources.nvml.sample_series import Series

_MAX_FILL: Final = 0.7
"""The part of a ring that may fill before it is read again; the rest is for late threads."""

_MIN_INTERVAL_NS: Final = NS // 10
_EMPTY_RETRY_NS: Final = 10 * NS
"""How long an empty ring, such as those of clocks on Hopper, is not read again."""

_MAX_SIZE: Final = 1 << 16
_US: Final = 1000  # nanoseconds

# A time stamp and a value of eight bytes; the index is nvmlValueType_t.
_FORMATS: Final = tuple(
    struct.Struct("=Q" + value) for value in ("d", "I4x", "Q", "Q", "q", "i4x", "H6x")
)

# By unit: the largest possible value, and the divisor of NVML's value.
_LIMITS: Final = {"watts": (100_000_000, 1000), "percent": (100, 1), "mhz": (50_000, 1)}


class Ring:
    """Reads one ring of one GPU and returns the statistics of its window.

    Args:
        target: the GPU, and the length of the window.
        number: NVML's id of the sampled quantity (`nvmlSamplingType_t`).
        outputs: the outputs of minimum, mean and maximum; None for each that is not requested.
        max_value: the largest possible value, in NVML's unit.

    Attributes:
        due_ns: when it must be read again so that no sample is lost, by the monotonic clock;
            infinite if unknown.
    """

    def __init__(
        self, target: ReadTarget, number: int, outputs: Sequence[FieldOutput | None], max_value: int
    ) -> None:
        self.due_ns: float = math.inf
        self._outputs = outputs
        self._now = target.now
        self._series = Series(target.wanted.window_ns // _US, max_value)
        self._last_new_at = target.now()
        self._retry_ns = 0
        self._size = 0
        self._type, self._count = ctypes.c_uint(), ctypes.c_uint()
        self._samples = ctypes.create_string_buffer(0)
        # Read all samples each time, which takes as long as reading only new ones: no sample is
        # missed after the clock was set back, and the spacing is known.
        self._bind = partial(
            target.bind,
            "nvmlDeviceGetSamples",
            ctypes.c_uint(number),
            ctypes.c_ulonglong(0),
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
            start = Instant(at.mono_ns - reach * _US, at.wall_ns - reach * _US)
            values = (summary.minimum, summary.mean, summary.maximum)
            for output, value in zip(self._outputs, values, strict=True):
                if output is not None:
                    output.add(result, at, value, start)
        implausible, self._series.has_implausible = self._series.has_implausible, False
        return codes.OUT_OF_RANGE if implausible else code

    def drain(self) -> int:
        """Read the ring and add its new samples to the window; return NVML's code."""
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
        if series.spacing:
            delay_ns = round(_MAX_FILL * series.spacing * series.capacity * _US)
            self.due_ns = at.mono_ns + max(_MIN_INTERVAL_NS, delay_ns)
        return code

    def _fetch(self) -> int:
        """Read the whole ring into an array that grows as required."""
        while True:
            if self._call is None:
                code = self._bind(None)()
                if code:
                    return code
                self._series.capacity = self._count.value
                # Always more than before; a driver that reports too few would loop here.
                self._size = min(_MAX_SIZE, max(self._count.value, self._size * 2, 1))
                self._samples = ctypes.create_string_buffer(self._size * library.SAMPLE_SIZE)
                self._call = self._bind(self._samples)
            self._count.value = self._size
            code = self._call()
            if code != codes.INSUFFICIENT_SIZE or self._size >= _MAX_SIZE:
                return code
            self._call = None

    def reset(self) -> None:
        """Start from zero: the GPU was down."""
        self.due_ns = math.inf
        self._retry_ns = 0
        self._series.reset()


def rings(target: ReadTarget) -> list[Ring]:
    """Create the readers of a GPU's rings that have a requested field."""
    found: list[Ring] = []
    for name, unit, number, _ in SAMPLED:
        fields = [f"{name}_{which}_{unit}" for which in STATISTICS_OF]
        if target.wants(*fields):
            limits = _LIMITS[unit]
            outputs = [target.output(f, *limits) if target.wants(f) else None for f in fields]
            found.append(Ring(target, number, outputs, limits[0]))
    return found
