"""GPU performance monitoring (GPM): how busy the parts of a device were between two visits.

NVML takes samples into buffers of the caller, and calculates a metric as the average between two
samples. So a visit takes one sample and compares it with the sample of the visit before, and the
windows have no gap between them. A visit less than 0.1 s after the last sample takes none.
"""

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pipeline.fields import CATALOGUE
from pipeline.model import NS, Instant, Reading
from sources.nvml import codes, library
from sources.nvml.library import Buffer, Call, Library, Struct
from sources.nvml.reader_parts import GpuReadings, ReadTarget, combined

MIN_INTERVAL_NS: Final = NS // 10
"""The driver updates its counters ten times a second; results between closer samples are
meaningless."""

MIN_VALIDITY_NS: Final = 6 * MIN_INTERVAL_NS
"""Minimum validity of readings: if rounds come ten times a second, every other round is slightly
too early for a sample, and a late round must not end the series."""

_ENGINE: Final = re.compile(rf"({'|'.join(library.ENGINES)})(\d+)_active_ratio")
_CALL: Final = re.compile(r"nvmlGpmMetricsGet\((\d+)\)")
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric of NVML is converted to a field's value.

    Attributes:
        number: NVML's id of the metric.
        factor: by what NVML's value is multiplied to convert it to the field's unit.
        max_value: the largest possible value, in the field's unit.
        tolerance: by how much rounding may exceed a limit; such a value is set to the limit.
        mig: whether MIG instances have the metric.
    """

    number: int
    factor: float
    max_value: float
    tolerance: float
    mig: bool


# The limit of a rate is far above the values of any GPU.
METRICS: Final[Mapping[str, Metric]] = {
    field.name: Metric(int(found[1]), 0.01, 1.0, 0.001, field.mig)
    if field.unit == "ratio"
    else Metric(int(found[1]), _MIB, 1e14, 0.0, field.mig)
    for field in CATALOGUE
    if (found := _CALL.fullmatch(field.call))
}


class MetricQuery:
    """A query of several metrics with one call. Several devices use it in turn."""

    def __init__(self, nvml: Library, names: tuple[str, ...]) -> None:
        self._box, metrics = library.gpm_metrics_box([METRICS[name].number for name in names])
        self._call = nvml.bind("nvmlGpmMetricsGet", ctypes.byref(self._box))
        self._parts: list[tuple[Struct, str, Metric]] = [
            (metric, name, METRICS[name]) for metric, name in zip(metrics, names, strict=True)
        ]

    def compare(
        self,
        older: Buffer,
        newer: Buffer,
        result: GpuReadings,
        make: Callable[[str, float], Reading],
    ) -> int:
        """Append the values between two samples; return NVML's code.

        A metric that fails does not affect the others. The code is `NOT_SUPPORTED` if the device
        has none of the metrics.
        """
        box = self._box
        box.sample1, box.sample2 = older.box, newer.box
        for metric, _, _ in self._parts:
            metric.nvmlReturn = codes.NOT_SUPPORTED
        return self._call() or combined(result, self._add_values(result, make))

    def _add_values(
        self, result: GpuReadings, make: Callable[[str, float], Reading]
    ) -> Iterator[int]:
        for metric, name, known in self._parts:
            code = metric.nvmlReturn
            if code == codes.OK:
                value = metric.value * known.factor
                if -known.tolerance <= value <= known.max_value + known.tolerance:
                    result.append(make(name, min(max(value, 0.0), known.max_value)))
                else:
                    code = codes.OUT_OF_RANGE
            yield code


@dataclass(slots=True)
class _Sample:
    """A buffer, the call that takes a sample into it, and when that call last began and ended."""

    buffer: Buffer
    take: Call
    at: Instant
    ended: Instant


class Profiler:
    """Reads GPM metrics of one device from the samples of its last two visits.

    Args:
        target: the device.
        take: creates the call that takes a sample into a given buffer.
        query: the query of the metrics.
    """

    def __init__(self, target: ReadTarget, take: Callable[[Any], Call], query: MetricQuery) -> None:
        self._buffers = target.nvml.buffers
        self._target = target
        self._take = take
        self._query = query
        self._previous: _Sample | None = None
        self._spare: list[_Sample] = []
        self._shared = False

    def read(self, result: GpuReadings, _at: Instant) -> int:
        """Take a sample and compare it with the previous one. A `Reader`.

        Returns `NOT_CALLED` if the counters are shared, or the previous sample is too new.
        """
        if self._shared:
            return codes.NOT_CALLED
        older, at = self._previous, self._target.now()
        if older is not None and at.mono_ns - older.ended.mono_ns < MIN_INTERVAL_NS:
            return codes.NOT_CALLED
        while older is None and len(self._spare) < 2:
            code, buffer = self._buffers.new()
            if buffer is None:
                return code
            self._spare.append(_Sample(buffer, self._take(buffer.box), at, at))
        newer = self._spare[-1]
        newer.at = at
        code = newer.take()
        newer.ended = self._target.now()
        if code:
            if code in codes.UNSUPPORTED:
                self.reset()
            return code
        self._previous = self._spare.pop()
        if older is None:
            return codes.OK
        self._spare.append(older)
        uuid, start = self._target.uuid, older.at
        valid_ns = max(self._target.wanted.fast_valid_ns, MIN_VALIDITY_NS)
        return self._query.compare(
            older.buffer,
            newer.buffer,
            result,
            lambda field, value: Reading(uuid, field, (), value, start, at, valid_ns),
        )

    def reset(self) -> None:
        """Discard the samples, so that the next one starts a new window."""
        self._previous = None
        self._spare.clear()

    def set_shared(self, *, shared: bool) -> None:
        """Set whether other instances share this device's counters; then they are not read."""
        if shared:
            self.reset()
        self._shared = shared


class Profiling:
    """GPM of one GPU and its MIG instances.

    Args:
        target: the GPU, and the requested fields.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """

    def __init__(self, target: ReadTarget) -> None:
        self._target = target
        names = tuple(name for name in METRICS if target.wants(name))
        if names:
            code, is_supported = target.nvml.supports_gpm(target.handle)
            codes.check(code)
            # A driver that cannot report it returns a code for each sample instead.
            if not is_supported and (code == codes.OK or code in codes.UNSUPPORTED):
                names = ()
        names = self._existing(names)
        self._own = MetricQuery(target.nvml, names) if names else None
        names = tuple(name for name in names if METRICS[name].mig)
        self._instances = MetricQuery(target.nvml, names) if names else None

    def _existing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names without engines that the GPU lacks: NVML reports no activity of them."""
        engines = {name: found for name in names if (found := _ENGINE.fullmatch(name))}
        has = self._target.nvml.engines(self._target.handle) if engines else None
        if has is None:
            return names
        return tuple(
            name
            for name in names
            if name not in engines or int(engines[name][2]) < has[engines[name][1]]
        )

    def profiler(self, uuid: str, gpu_instance: int | None = None) -> Profiler | None:
        """Create the profiler of the GPU or of a MIG instance; None if it has no metric to read.

        NVML counts per GPU instance, not per compute instance.
        """
        target = replace(self._target, uuid=uuid)
        query = self._own if gpu_instance is None else self._instances
        if query is None:
            return None
        take = target.bind("nvmlGpmSampleGet")
        if gpu_instance is not None:
            take = target.bind("nvmlGpmMigSampleGet", ctypes.c_uint(gpu_instance))
        return Profiler(target, partial(partial, take), query)
