"""The readers of the slow tier that one call doesn't make one number of."""

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
        wanted: what is to be read.
        others: the GPUs that it may reach.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    fields = wanted.fields
    made = [field_values.batch(nvml, handle, list(_values(nvml, handle, uuid, wanted)))]
    for field, which in board_limits.THRESHOLDS.items():
        if field in fields:
            made.append(board_limits.threshold(nvml, handle, which, wanted.target(uuid, field)))
    single = (
        ("fan_speed_percent", board_limits.fans),
        ("vgpu_license_status", board_limits.licence),
        ("nvlink_up", nvlink_counters.states),
    )
    for field, make in single:
        if field in fields:
            made.append(make(nvml, handle, wanted.target(uuid, field)))
    if "p2p_status" in fields:
        made.append(nvlink_peers.status(nvml, handle, wanted.target(uuid, "p2p_status"), others))
    yield from (reader for reader in made if reader is not None)


def _values(
    nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest
) -> Iterator[FieldValueRequest]:
    """Yield the field values, which one call fetches."""
    fields = wanted.fields
    for field, known in field_values.SLOW.items():
        if field in fields:
            target = wanted.target(uuid, field)
            instead = None
            if field == "power_limit_watts":
                instead = board_limits.limit_before(nvml, handle, target)
            yield FieldValueRequest(known.number, field_values.number(known, target), 0, instead)
    yield from nvlink_counters.traffic(nvml, handle, uuid, wanted.slow_good_ns, fields)
    yield from nvlink_counters.errors(
        nvml, handle, fields, lambda field: wanted.target(uuid, field)
    )
