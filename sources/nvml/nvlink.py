"""NVLinks of a GPU: counters, connections to other GPUs, and fabric, as the driver reports them.

On a Hopper GPU, each call for the state or the remote device of a link takes up to 1 ms.
"""

import ctypes
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from pipeline.fields.link_fields import NVLINKS
from pipeline.model import NS, Attrs, Instant, Level, Reading
from sources.nvml import codes, library
from sources.nvml.composite_readers import ALL_LINKS, FieldValueRequest, batch
from sources.nvml.library import Handle, Library
from sources.nvml.reader_parts import COUNT, NONE64, GpuReadings, Reader, ReadTarget, combined

MAX_LINKS: Final = 36
"""NVMLNVLINK_MAX_LINKS of the newest header; an older driver refuses numbers it does not know."""

_GPU, _SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t
_NVLINK: Final = 2  # nvmlGpuP2PCapsIndex_t
_P2P_UNKNOWN: Final = 6  # nvmlGpuP2PStatus_t
_REGISTERED: Final = 3  # NVML_GPU_FABRIC_STATE_COMPLETED

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

TOTALS: Final = (
    "nvlink_bandwidth_bytes_per_second",
    "nvlink_transmitted_bytes",
    "nvlink_received_bytes",
)
RATES: Final = tuple(f"nvlink_{link}_bandwidth_bytes_per_second" for link in range(NVLINKS))


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


@dataclass(frozen=True, slots=True)
class Links:
    """A GPU's active NVLinks, by the devices at their other ends.

    Attributes:
        switched: number of links to an NVSwitch.
        direct: number of links to another device, by its PCI bus id in lower case.
        unknown_remote: number of links whose other end the driver does not report.
    """

    switched: int
    direct: Mapping[str, int]
    unknown_remote: int

    @property
    def active(self) -> int:
        """The number of active links."""
        return self.switched + sum(self.direct.values()) + self.unknown_remote


def read_links(nvml: Library, handle: Handle) -> Links | None:
    """Read the links of a GPU.

    Returns:
        The links, without links if the driver supports none for this GPU. None if they are
        unknown: the driver lacks the call, or it failed.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    switched = unknown_remote = 0
    direct: Counter[str] = Counter()
    for link in range(MAX_LINKS):
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
            # Its bus id is useless: every switch leads to all GPUs, and reports FFFFFFFF:FF:FF.0.
            switched += 1
            continue
        known = code != codes.OK or kind == _GPU
        code, bus_id = nvml.remote_bus_id(handle, link) if known else (codes.NOT_FOUND, "")
        codes.check(code)
        if code == codes.OK and bus_id:
            direct[bus_id.lower()] += 1
        else:
            unknown_remote += 1
    return Links(switched, dict(direct), unknown_remote)


def nvlink_count(
    a: tuple[str, Links | None], b: tuple[str, Links | None], reachable: bool | None
) -> int | None:
    """Return how many NVLinks connect two GPUs.

    Args:
        a: PCI bus id and links of the first GPU.
        b: PCI bus id and links of the second GPU.
        reachable: whether the driver reports that they reach each other over NVLink. A GPU cannot
            distinguish separate sets of switches: if this is False, no switches connect them.

    Returns:
        The number of direct links. Without direct links, if both GPUs have links to switches: the
        number of active links of the GPU with fewer. None if it is unknown.
    """
    (bus_a, one), (bus_b, other) = a, b
    if one is None or other is None:
        known = one if one is not None else other
        return 0 if known is not None and not known.active else None
    # Both ends report the same links; a new link may be visible at one end first.
    direct = min(one.direct.get(bus_b.lower(), 0), other.direct.get(bus_a.lower(), 0))
    if direct:
        return direct
    if reachable is not False and one.switched and other.switched:
        return min(one.active, other.active)
    if reachable is not False and (one.unknown_remote or other.unknown_remote):
        return None
    return 0


def read_fabric(nvml: Library, handle: Handle) -> tuple[str, int | None]:
    """Read the NVLink fabric with which a GPU is registered.

    Returns:
        The cluster's uuid and the clique's number. The uuid is empty for the switches of a single
        node. Empty and None if the GPU is not registered, or if the driver does not report it.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    code, info = nvml.fabric(handle)
    codes.check(code)
    cluster = bytes(info.clusterUuid)
    # The state has one byte in NVML's header, four in pynvml.
    if code or info.state & 0xFF != _REGISTERED or info.status:
        return "", None
    return str(uuid.UUID(bytes=cluster)) if any(cluster) else "", int(info.cliqueId)


def read_level(nvml: Library, one: Handle, other: Handle) -> tuple[int, Level | None]:
    """Read the closest common PCIe level of two GPUs; return NVML's code and the level."""
    code, number = nvml.number("nvmlDeviceGetTopologyCommonAncestor", one, other)
    if code:
        return code, None
    try:
        return code, Level(number)
    except ValueError:
        return codes.OUT_OF_RANGE, None


def read_reachable(nvml: Library, one: Handle, other: Handle) -> tuple[int, bool | None]:
    """Read whether two GPUs reach each other over NVLink; takes up to 2 ms.

    Returns:
        NVML's code, and whether they do; None if it is unknown.
    """
    code, status = nvml.number("nvmlDeviceGetP2PStatus", one, other, ctypes.c_int(_NVLINK))
    return code, status == 0 if code == 0 and status < _P2P_UNKNOWN else None


def count(target: ReadTarget) -> int:
    """Return how many NVLinks a GPU has; the maximum if the driver does not report it."""
    values = library.field_values((_LINK_COUNT, 0))
    code = target.bind("nvmlDeviceGetFieldValues", ctypes.c_int(1), values)()
    codes.check(code)
    found = library.field_number(values[0]) if code == 0 == values[0].nvmlReturn else None
    return min(int(found), NVLINKS) if found is not None else NVLINKS


class _Traffic:
    """The two byte counters of one link, or of all links, and their sum as a rate.

    Both counters are in one batch, the transmitted bytes first.

    Args:
        target: the GPU.
        counters: name and attributes of the two counters; an empty name or list if not requested.
        rate: name of the rate; empty if it is not requested.
    """

    def __init__(self, target: ReadTarget, counters: list[tuple[str, Attrs]], rate: str) -> None:
        self._uuid, self._valid_ns = target.uuid, target.wanted.slow_valid_ns
        self._counters = counters
        self._rate = rate
        self._sent: int | float | None = None
        self._before: tuple[int | float, Instant] | None = None

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
        if place == 0:
            self._sent = value
        elif self._rate and sent is not None:
            self._report_rate(sent + value, result, at)
        return codes.OK

    def _report_rate(self, both: int | float, result: GpuReadings, at: Instant) -> None:
        before, self._before = self._before, (both, at)
        if before is None:
            return
        value, start = before
        elapsed_ns = at.mono_ns - start.mono_ns
        # A smaller value means that the driver was reloaded, so the traffic meanwhile is unknown.
        if both >= value and elapsed_ns > 0:
            rate = (both - value) * _KIB * NS / elapsed_ns
            result.append(Reading(self._uuid, self._rate, (), rate, start, at, self._valid_ns))


def traffic(target: ReadTarget) -> Iterator[FieldValueRequest]:
    """Yield the requests of field values for the traffic over NVLinks."""
    if target.wants(*TOTALS):
        rate, *totals = (name if target.wants(name) else "" for name in TOTALS)
        yield from _Traffic(target, [(name, ()) for name in totals], rate).requests(ALL_LINKS)
    per_link = target.wants("nvlink_bytes")
    for link in range(count(target) if per_link or target.wants(*RATES) else 0):
        rate = RATES[link] if target.wants(RATES[link]) else ""
        counters: list[tuple[str, Attrs]] = []
        if per_link:
            counters = [
                ("nvlink_bytes", (("direction", direction), ("link", str(link))))
                for direction in _DIRECTIONS
            ]
        if counters or rate:
            yield from _Traffic(target, counters, rate).requests(link)


def errors(target: ReadTarget) -> Iterator[FieldValueRequest]:
    """Yield the requests of field values that count errors over all links."""
    for field, (total_id, newer_id) in ERRORS.items():
        if target.wants(field):
            add = target.output(field, COUNT).add
            fallback = None
            if newer_id is not None:
                fallback = batch(target, [FieldValueRequest(newer_id, add, ALL_LINKS)])
            yield FieldValueRequest(total_id, add, 0, fallback)


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
            code = target.bind(name, handle, ctypes.c_int(_NVLINK), ctypes.byref(box))()
            if code == codes.OK and box.value >= len(_STATUS):
                code = codes.OUT_OF_RANGE
            if code == codes.OK:
                attrs = (("link_status", _STATUS[box.value]), ("peer_gpu", str(index)))
                result.append(Reading(target.uuid, field, attrs, box.value, None, at, valid_ns))
            # Either GPU may be lost; other calls report which.
            yield codes.NOT_FOUND if code in codes.LOST else code

    return lambda result, at: combined(result, each(result, at))
