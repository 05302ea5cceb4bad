"""What happened between two rounds: the driver's own samples, summed up over a window.

The driver samples power, utilisation and clocks by itself, some fifty or five times a second, into
rings that hold seconds of them. They are read before they wrap, and summed up.
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
from sources.nvml.readers import GpuReadings
from sources.nvml.sample_series import Series

_READ_AGAIN: Final = 0.7
"""The part of a ring that may fill before it is read again: a late thread has the rest."""

_SOONEST_NS: Final = NS // 10
_REST_NS: Final = 10 * NS
"""For how long a ring that is empty, as those of clocks are on Hopper, is left alone."""

_ROOM_MOST: Final = 1 << 16
_US: Final = 1000  # nanoseconds

# A stamp and a value of eight bytes, by nvmlValueType_t.
_FORMATS: Final = tuple(
    struct.Struct("=Q" + value) for value in ("d", "I4x", "Q", "Q", "q", "i4x", "H6x")
)

# By unit: the largest value that can be true, and what NVML's number is divided by.
_LIMITS: Final = {"watts": (100_000_000, 1000), "percent": (100, 1), "mhz": (50_000, 1)}


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the values that the driver samples.

    Attributes:
        number: NVML's sampling type.
        fields: names of the fields for least, mean and most; None for one that nobody asked for.
        most: the largest value that can be true, in NVML's unit.
        divisor: what NVML's value is divided by to be in the unit of the fields.
    """

    number: int
    fields: tuple[str | None, ...]
    most: int
    divisor: int


class Ring:
    """One ring of one GPU: reads it, and tells what its window comes to.

    Args:
        nvml: the library.
        handle: of the GPU.
        kind: which ring.
        target: uuid of the GPU, and how long its readings are good.
        window_ns: length of the window.
        now: the clock.

    Attributes:
        due_ns: when it has to be read again for nothing to be lost, by the monotonic clock;
            infinite while that can't be told.
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
        self._series = Series(window_ns // _US, kind.most)
        self._last_new_ns = now()
        self._rest_ns = 0
        self._room = self._holds = 0
        self._type, self._count = ctypes.c_uint(), ctypes.c_uint()
        self._samples = ctypes.create_string_buffer(0)
        # All samples each time, which costs what the newest alone do: then a clock that was set
        # back hides none, and it is seen how closely they come.
        since = ctypes.c_ulonglong(0)
        self._args = (
            handle,
            ctypes.c_uint(kind.number),
            since,
            ctypes.byref(self._type),
            ctypes.byref(self._count),
        )
        self._call: Call | None = None

    def read(self, sheet: GpuReadings, _at: Instant) -> int:
        """Read what is new, and append what the window comes to. A `Reader`."""
        at = self._now()
        code = self.drain()
        if code:
            return code
        found = self._series.summary((at.mono_ns - self._last_new_ns.mono_ns) // _US)
        if found is not None:
            summary, reach = found
            uuid, good = self._target
            start = Instant(at.mono_ns - reach * _US, at.wall_ns - reach * _US)
            divisor = self._kind.divisor
            values = (summary.least, summary.mean, summary.most)
            for field, value in zip(self._kind.fields, values, strict=True):
                if field is not None:
                    of_unit = value if divisor == 1 else value / divisor
                    sheet.append(Reading(uuid, field, (), of_unit, start, at, good))
        wrong, self._series.has_implausible = self._series.has_implausible, False
        return codes.OUT_OF_RANGE if wrong else code

    def drain(self) -> int:
        """Take what is new in the ring; return NVML's code."""
        self.due_ns = math.inf
        at = self._now()
        if at.mono_ns < self._rest_ns:
            return codes.UNASKED
        code = self._fetch()
        size = min(self._count.value, self._room) * library.SAMPLE_SIZE
        if code == codes.NOT_FOUND or (code == codes.OK and not size):
            self._rest_ns = at.mono_ns + _REST_NS
            return codes.NOT_FOUND
        if code:
            return code
        if self._type.value >= len(_FORMATS):
            return codes.NOT_SUPPORTED
        raw = ctypes.string_at(self._samples, size)
        series = self._series
        if series.add_ring(sorted(_FORMATS[self._type.value].iter_unpack(raw))):
            self._last_new_ns = at
        if series.wrapped_samples is not None:
            # It holds less than the driver says, or the thread was late.
            self._holds, series.wrapped_samples = min(self._holds, series.wrapped_samples), None
        if series.spacing:
            ahead = round(_READ_AGAIN * series.spacing * self._holds * _US)
            self.due_ns = at.mono_ns + max(_SOONEST_NS, ahead)
        return code

    def _fetch(self) -> int:
        """Read the whole ring, with room that grows as it is needed."""
        while True:
            if self._call is None:
                code = self._make_room()
                if code:
                    return code
            self._count.value = self._room
            code = codes.FUNCTION_NOT_FOUND if self._call is None else self._call()
            if code != codes.INSUFFICIENT_SIZE or self._room >= _ROOM_MOST:
                return code
            self._call = None

    def _make_room(self) -> int:
        code = self._nvml.ask("nvmlDeviceGetSamples", *self._args, None)
        if code == 0:
            self._holds = self._count.value
            # More than before in any case, or a driver that says less than it has keeps us here.
            self._room = min(_ROOM_MOST, max(self._holds, self._room * 2, 1))
            self._samples = ctypes.create_string_buffer(self._room * library.SAMPLE_SIZE)
            self._call = self._nvml.bind("nvmlDeviceGetSamples", *self._args, self._samples)
        return code

    def reset(self) -> None:
        """Start anew: the GPU was away."""
        self.due_ns = math.inf
        self._rest_ns = 0
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
    """Make what reads the rings of a GPU that somebody asked for; arguments as in `Ring`."""
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
