"""NVLink counters: bytes, state and errors, of each link and of all links together."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Final

from pipeline.fields.link_fields import NVLINKS
from pipeline.model import NS, Attrs, Instant, Reading
from sources.nvml import codes, library
from sources.nvml.field_values import ALL_LINKS, FieldValueRequest, FieldValueSpec, batch, number
from sources.nvml.library import Handle, Library
from sources.nvml.readers import NONE64, GpuReadings, Reader

_LINK_COUNT: Final = 91
_DIRECTIONS: Final = (("transmitted", 138), ("received", 139))
_KIB: Final = 1 << 10
_MAX_KIB: Final = 1 << 52
_COUNT: Final = 1 << 62

ERRORS: Final = {
    "nvlink_crc_flit_errors": (38, 163),
    "nvlink_crc_data_errors": (45, None),
    "nvlink_replay_errors": (52, 161),
    "nvlink_recovery_errors": (59, 162),
}
"""NVML's id of the sum over all links, and the id that replaces it on Hopper and newer.

These GPUs do not count CRC errors of data in a field value. Their counters per link return a
number that grows by thousands while no packet is replayed. It is not a count of such errors, so
there is no reading."""

TOTALS: Final = (
    "nvlink_bandwidth_bytes_per_second",
    "nvlink_transmitted_bytes",
    "nvlink_received_bytes",
)
RATES: Final = tuple(f"nvlink_{link}_bandwidth_bytes_per_second" for link in range(NVLINKS))


def count(nvml: Library, handle: Handle) -> int:
    """Return how many NVLinks a GPU has; the maximum if the driver does not report it."""
    values = library.field_values((_LINK_COUNT, 0))
    code = nvml.call("nvmlDeviceGetFieldValues", handle, ctypes.c_int(1), values)
    codes.check(code)
    found = library.field_number(values[0]) if code == 0 == values[0].nvmlReturn else None
    return min(int(found), NVLINKS) if found is not None else NVLINKS


class _Traffic:
    """The two byte counters of one link, or of all links, and their sum as a rate.

    Both are in one batch, the transmitted bytes first.
    """

    def __init__(
        self,
        uuid: str,
        valid_ns: int,
        counters: tuple[tuple[str, Attrs] | None, tuple[str, Attrs] | None],
        rate: str | None,
    ) -> None:
        self._uuid = uuid
        self._valid_ns = valid_ns
        self._counters = counters
        self._rate = rate
        self._sent: int | float | None = None
        self._before: tuple[int | float, Instant] | None = None

    def transmitted(self, result: GpuReadings, at: Instant, value: int | float) -> int:
        self._sent = None
        if not 0 <= value <= _MAX_KIB:
            return codes.OK if value == NONE64 else codes.OUT_OF_RANGE
        self._sent = value
        self._report(self._counters[0], value, result, at)
        return codes.OK

    def received(self, result: GpuReadings, at: Instant, value: int | float) -> int:
        if not 0 <= value <= _MAX_KIB:
            return codes.OK if value == NONE64 else codes.OUT_OF_RANGE
        self._report(self._counters[1], value, result, at)
        if self._rate is not None and self._sent is not None:
            self._report_rate(self._rate, self._sent + value, result, at)
        self._sent = None
        return codes.OK

    def _report(
        self,
        counter: tuple[str, Attrs] | None,
        value: int | float,
        result: GpuReadings,
        at: Instant,
    ) -> None:
        if counter is not None:
            field, attrs = counter
            result.append(Reading(self._uuid, field, attrs, value * _KIB, None, at, self._valid_ns))

    def _report_rate(self, field: str, both: int | float, result: GpuReadings, at: Instant) -> None:
        before, self._before = self._before, (both, at)
        if before is None:
            return
        value, start = before
        elapsed_ns = at.mono_ns - start.mono_ns
        # A smaller value means that the driver was reloaded, so the traffic meanwhile is unknown.
        if both >= value and elapsed_ns > 0:
            per_second = (both - value) * _KIB * NS / elapsed_ns
            result.append(Reading(self._uuid, field, (), per_second, start, at, self._valid_ns))


def traffic(
    nvml: Library, handle: Handle, uuid: str, valid_ns: int, wanted: frozenset[str]
) -> Iterator[FieldValueRequest]:
    """Yield the field values of the traffic over NVLinks."""
    if not wanted.isdisjoint(TOTALS):
        counters = [(name, ()) if name in wanted else None for name in TOTALS[1:]]
        rate = TOTALS[0] if TOTALS[0] in wanted else None
        both = _Traffic(uuid, valid_ns, (counters[0], counters[1]), rate)
        yield from _pair(both, ALL_LINKS)
    per_link = "nvlink_bytes" in wanted
    if not per_link and wanted.isdisjoint(RATES):
        return
    for link in range(count(nvml, handle)):
        rate = RATES[link] if RATES[link] in wanted else None
        if per_link or rate:
            named = [
                ("nvlink_bytes", (("direction", direction), ("link", str(link))))
                if per_link
                else None
                for direction, _ in _DIRECTIONS
            ]
            yield from _pair(_Traffic(uuid, valid_ns, (named[0], named[1]), rate), link)


def _pair(both: _Traffic, scope: int) -> tuple[FieldValueRequest, FieldValueRequest]:
    (_, sent), (_, received) = _DIRECTIONS
    return FieldValueRequest(sent, both.transmitted, scope), FieldValueRequest(
        received, both.received, scope
    )


def errors(
    nvml: Library,
    handle: Handle,
    wanted: frozenset[str],
    target: Callable[[str], tuple[str, str, int]],
) -> Iterator[FieldValueRequest]:
    """Yield the field values that count errors over all links."""
    for field, (total_id, newer_id) in ERRORS.items():
        if field in wanted:
            on_value = number(FieldValueSpec(total_id, _COUNT), target(field))
            fallback = (
                None
                if newer_id is None
                else batch(nvml, handle, [FieldValueRequest(newer_id, on_value, ALL_LINKS)])
            )
            yield FieldValueRequest(total_id, on_value, 0, fallback)


def states(nvml: Library, handle: Handle, target: tuple[str, str, int]) -> Reader | None:
    """Create a reader that shows which links are up."""
    box = ctypes.c_uint()
    uuid, field, valid_ns = target
    calls = [
        (call, (("link", str(link)),))
        for link in range(count(nvml, handle))
        if (
            call := nvml.bind(
                "nvmlDeviceGetNvLinkState", handle, ctypes.c_uint(link), ctypes.byref(box)
            )
        )
        is not None
    ]
    if not calls:
        return None

    def read(result: GpuReadings, at: Instant) -> int:
        has_some = False
        for call, attrs in calls:
            code = call()
            if code in codes.LOST or code in codes.DRIVER_GONE:
                return code
            if code == codes.OK and box.value > 1:
                code = codes.OUT_OF_RANGE
            has_some |= code not in codes.NO_READING
            if code == codes.OK:
                result.append(Reading(uuid, field, attrs, box.value, None, at, valid_ns))
            elif code not in codes.NO_READING:
                result.errors.append(code)
        return codes.OK if has_some else codes.NOT_SUPPORTED

    return read
