"""Creates the readers of the slow tier that are more than one number of one call."""

from collections.abc import Iterator

from sources.nvml import board_limits, field_values, nvlink_counters, nvlink_peers
from sources.nvml.field_values import FieldValueRequest
from sources.nvml.library import Handle, Library
from sources.nvml.nvlink_peers import Peers
from sources.nvml.read_plan import ReadingRequest
from sources.nvml.readers import Reader


def readers_of(
    nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest, others: Peers
) -> Iterator[Reader]:
    """Yield the readers of a GPU.

    Args:
        nvml: the library.
        handle: of the GPU.
        uuid: of the GPU.
        wanted: what to read.
        others: returns the GPUs that it may reach.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    fields = wanted.fields
    created = [field_values.batch(nvml, handle, list(_values(nvml, handle, uuid, wanted)))]
    for field, threshold in board_limits.THRESHOLDS.items():
        if field in fields:
            created.append(
                board_limits.threshold(nvml, handle, threshold, wanted.target(uuid, field))
            )
    single = (
        ("fan_speed_percent", board_limits.fans),
        ("vgpu_license_status", board_limits.licence),
        ("nvlink_up", nvlink_counters.states),
    )
    for field, make in single:
        if field in fields:
            created.append(make(nvml, handle, wanted.target(uuid, field)))
    if "p2p_status" in fields:
        created.append(nvlink_peers.status(nvml, handle, wanted.target(uuid, "p2p_status"), others))
    yield from (reader for reader in created if reader is not None)


def _values(
    nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest
) -> Iterator[FieldValueRequest]:
    """Yield the field values, which are read with one call."""
    fields = wanted.fields
    for field, spec in field_values.SLOW.items():
        if field in fields:
            target = wanted.target(uuid, field)
            fallback = None
            if field == "power_limit_watts":
                fallback = board_limits.power_limit_fallback(nvml, handle, target)
            yield FieldValueRequest(spec.number, field_values.number(spec, target), 0, fallback)
    yield from nvlink_counters.traffic(nvml, handle, uuid, wanted.slow_valid_ns, fields)
    yield from nvlink_counters.errors(
        nvml, handle, fields, lambda field: wanted.target(uuid, field)
    )
