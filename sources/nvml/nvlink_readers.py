"""Readers of a GPU's NVLinks: traffic, errors, state, and which GPUs they reach."""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from pipeline.fields.link_fields import NVLINKS
from pipeline.model import NS, Attrs, Instant, Reading
from sources.nvml import codes, library
from sources.nvml.composite_readers import ALL_LINKS, FieldValueRequest, batch
from sources.nvml.library import Handle
from sources.nvml.nvlink import NVLINK
from sources.nvml.reader_parts import (
    COUNT,
    NONE64,
    FieldOutput,
    GpuReadings,
    Reader,
    ReadTarget,
    combined,
)

_LINK_COUNT: Final = 91
_DIRECTIONS: Final = {"transmitted": 138, "received": 139}
_KIB: Final = 1 << 10
_MAX_KIB: Final = 1 << 52

ERRORS: Final = {
    "nvlink_crc_flit_errors": (38, 163),
    "nvlink_crc_data_errors": (45, None),
    "nvlink_replay_errors": (52, 161),
    "nvlink_recovery_errors": (59, 162),
}
"""By field: NVML's id of the sum over all links, and the id for Hopper and newer GPUs, if any.

Hopper and newer GPUs do not count CRC errors of data in a field value. Their counters per link
return a number that grows by thousands while no packet is replayed. It is not a count of such
errors, so there is no reading."""

_PER_LINK: Final = {
    "crc_flit": (32, 96, 163),
    "crc_data": (39, 102, None),
    "replay": (46, 108, 161),
    "recovery": (53, 114, 162),
}
"""NVML's ids of the errors of link 0 and of link 6, and the id for Hopper and newer GPUs, which is
the same for each link."""

_FIRST_IDS: Final = 6
_OLD_LINKS: Final = 12
"""Number of links whose ids begin with the first one, and number of links that have such ids."""


def _rates(link: str) -> tuple[str, str, str]:
    """Return the names of the rates of one link, or of all links: both ways, sent, received."""
    one_way = (f"nvlink{link}_{way}_bandwidth_bytes_per_second" for way in _DIRECTIONS)
    return (f"nvlink{link}_bandwidth_bytes_per_second", *one_way)  # type: ignore[return-value]


TOTALS: Final = ("nvlink_transmitted_bytes", "nvlink_received_bytes")
RATES: Final = {
    ALL_LINKS: _rates(""),
    **{link: _rates(f"_{link}") for link in range(NVLINKS)},
}
"""Names of the rates by link: both ways, sent, received."""

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

Peers: TypeAlias = Callable[[], Iterable[tuple[int, Handle]]]
"""Returns index and handle of the other GPUs that are up and that no thread calls now."""


def count(target: ReadTarget) -> int:
    """Return how many NVLinks a GPU has; the maximum if the driver does not report it."""
    values = library.field_values((_LINK_COUNT, 0))
    code = target.bind("nvmlDeviceGetFieldValues", ctypes.c_int(1), values)()
    codes.check(code)
    found = library.field_number(values[0]) if code == 0 == values[0].nvmlReturn else None
    return min(int(found), NVLINKS) if found is not None else NVLINKS


class _Rate:
    """The rate of a counter of kibibytes, between two readings.

    Args:
        target: the GPU.
        field: name of the rate; empty if it is not requested.
    """

    def __init__(self, target: ReadTarget, field: str) -> None:
        self._uuid, self._valid_ns = target.uuid, target.wanted.slow_valid_ns
        self._field = field
        self._before: tuple[int | float, Instant] | None = None

    def report(self, value: int | float, result: GpuReadings, at: Instant) -> None:
        """Append the rate since the previous call, if it is known."""
        before, self._before = self._before, (value, at)
        if before is None or not self._field:
            return
        old, start = before
        elapsed_ns = at.mono_ns - start.mono_ns
        # A smaller value means that the driver was reloaded, so the traffic meanwhile is unknown.
        if value >= old and elapsed_ns > 0:
            rate = (value - old) * _KIB * NS / elapsed_ns
            result.append(Reading(self._uuid, self._field, (), rate, start, at, self._valid_ns))


class _Traffic:
    """The two byte counters of one link, or of all links, and their rates.

    Both counters are in one batch, the transmitted bytes first.

    Args:
        target: the GPU.
        counters: name and attributes of the two counters; an empty name or list if not requested.
        rates: names of the rates: both ways, sent, received; empty if not requested.
    """

    def __init__(
        self, target: ReadTarget, counters: list[tuple[str, Attrs]], rates: Sequence[str]
    ) -> None:
        self._uuid, self._valid_ns = target.uuid, target.wanted.slow_valid_ns
        self._counters = counters
        self._both, *self._one_way = (_Rate(target, rate) for rate in rates)
        self._sent: int | float | None = None

    def requests(self, link: int) -> Iterator[FieldValueRequest]:
        """Yield the requests of field values of a link, or of all links."""
        for place, number in enumerate(_DIRECTIONS.values()):
            yield FieldValueRequest(number, partial(self._take, place), link)

    def _take(self, place: int, result: GpuReadings, at: Instant, value: int | float) -> int:
        sent, self._sent = self._sent, None
        if not 0 <= value <= _MAX_KIB:
            return codes.OK if value == NONE64 else codes.OUT_OF_RANGE
        if self._counters and self._counters[place][0]:
            field, attrs = self._counters[place]
            result.append(Reading(self._uuid, field, attrs, value * _KIB, None, at, self._valid_ns))
        self._one_way[place].report(value, result, at)
        if place == 0:
            self._sent = value
        elif sent is not None:
            self._both.report(sent + value, result, at)
        return codes.OK


def traffic(target: ReadTarget) -> Iterator[FieldValueRequest]:
    """Yield the requests of field values for the traffic over NVLinks."""

    def requested(names: Sequence[str]) -> list[str]:
        return [name if target.wants(name) else "" for name in names]

    if target.wants(*TOTALS, *RATES[ALL_LINKS]):
        counters: list[tuple[str, Attrs]] = [(name, ()) for name in requested(TOTALS)]
        yield from _Traffic(target, counters, requested(RATES[ALL_LINKS])).requests(ALL_LINKS)
    per_link = target.wants("nvlink_bytes")
    wanted = {link: requested(RATES[link]) for link in range(NVLINKS)}
    if not per_link and not any(map(any, wanted.values())):
        return
    for link in range(count(target)):
        counters = []
        if per_link:
            counters = [
                ("nvlink_bytes", (("direction", direction), ("link", str(link))))
                for direction in _DIRECTIONS
            ]
        if counters or any(wanted[link]):
            yield from _Traffic(target, counters, wanted[link]).requests(link)


class _LinkErrors:
    """The errors of one link. A card reports them under the old or under the newer id.

    Args:
        output: converts the count.
    """

    def __init__(self, output: FieldOutput) -> None:
        self._output = output
        self._is_read = False

    def take_old(self, result: GpuReadings, at: Instant, value: int | float) -> int:
        """Append the count under the old id, which is requested first."""
        self._is_read = True
        return self._output.add(result, at, value)

    def take_newer(self, result: GpuReadings, at: Instant, value: int | float) -> int:
        """Append the count under the newer id, unless the card has the old one."""
        was_read, self._is_read = self._is_read, False
        return codes.OK if was_read else self._output.add(result, at, value)


def _link_errors(target: ReadTarget) -> Iterator[FieldValueRequest]:
    wanted = [
        (link, field, ids)
        for kind, ids in _PER_LINK.items()
        for link in range(NVLINKS)
        if target.wants(field := f"nvlink_{link}_{kind}_errors")
    ]
    links = count(target) if wanted else 0
    for link, field, (first, second, newer) in wanted:
        if link < links:
            errors = _LinkErrors(target.output(field, COUNT))
            if link < _OLD_LINKS:
                old = first + link if link < _FIRST_IDS else second + link - _FIRST_IDS
                yield FieldValueRequest(old, errors.take_old)
            if newer is not None:
                yield FieldValueRequest(newer, errors.take_newer, link)


def errors(target: ReadTarget) -> Iterator[FieldValueRequest]:
    """Yield the requests of field values that count errors over all links, and of each link."""
    for field, (total_id, newer_id) in ERRORS.items():
        if target.wants(field):
            add = target.output(field, COUNT).add
            fallback = None
            if newer_id is not None:
                fallback = batch(target, [FieldValueRequest(newer_id, add, ALL_LINKS)])
            yield FieldValueRequest(total_id, add, 0, fallback)
    yield from _link_errors(target)


def states(target: ReadTarget, field: str) -> Reader:
    """Create a reader that shows which links are up."""
    box = ctypes.c_uint()
    calls = [
        (
            target.bind("nvmlDeviceGetNvLinkState", ctypes.c_uint(link), ctypes.byref(box)),
            target.output(field, 1, 1, (("link", str(link)),)),
        )
        for link in range(count(target))
    ]

    def each(result: GpuReadings, at: Instant) -> Iterator[int]:
        for call, output in calls:
            yield call() or output.add(result, at, box.value)

    return lambda result, at: combined(result, each(result, at))


def peer_status(target: ReadTarget, field: str, peers: Peers) -> Reader:
    """Create a reader of the NVLink status to each other GPU; takes some 2 ms for each."""
    box, valid_ns = ctypes.c_uint(), target.output(field, 0).valid_ns
    name = "nvmlDeviceGetP2PStatus"

    def each(result: GpuReadings, at: Instant) -> Iterator[int]:
        # A call with a GPU that is down or hangs may hang too, and count against this GPU.
        for index, handle in peers():
            code = target.bind(name, handle, ctypes.c_int(NVLINK), ctypes.byref(box))()
            if code == codes.OK and box.value >= len(_STATUS):
                code = codes.OUT_OF_RANGE
            if code == codes.OK:
                attrs = (("link_status", _STATUS[box.value]), ("peer_gpu", str(index)))
                result.append(Reading(target.uuid, field, attrs, box.value, None, at, valid_ns))
            # Either GPU may be lost; other calls report which.
            yield codes.NOT_FOUND if code in codes.LOST else code

    return lambda result, at: combined(result, each(result, at))


def reachable_peers(target: ReadTarget, field: str, peers: Peers) -> Reader:
    """Create a reader of the GPUs that NVLinks reach, as a bit mask of their indices.

    There is no reading while the status to a GPU cannot be read.
    """
    box, output = ctypes.c_uint(), target.output(field, NONE64 - 1)

    def read(result: GpuReadings, at: Instant) -> int:
        mask, last = 0, codes.NOT_CALLED
        for index, handle in peers():
            args = (handle, ctypes.c_int(NVLINK), ctypes.byref(box))
            last = target.bind("nvmlDeviceGetP2PStatus", *args)()
            if last != codes.OK:
                # Either GPU may be lost; other calls report which.
                return codes.NOT_FOUND if last in codes.LOST else last
            mask |= (box.value == 0) << index
        return output.add(result, at, mask) or last

    return read
