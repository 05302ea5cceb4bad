"""The readers of the slow tier that one call doesn't make one number of."""

from collections.abc import Iterator

from sources.nvml import fieldvalues, limits, links, peers
from sources.nvml.fieldvalues import Item
from sources.nvml.library import Handle, Library
from sources.nvml.peers import Peers
from sources.nvml.plan import Wanted
from sources.nvml.readers import Reader


def readers_of(
    nvml: Library, handle: Handle, uuid: str, wanted: Wanted, others: Peers
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
    made = [fieldvalues.batch(nvml, handle, list(_values(nvml, handle, uuid, wanted)))]
    for field, which in limits.THRESHOLDS.items():
        if field in fields:
            made.append(limits.threshold(nvml, handle, which, wanted.target(uuid, field)))
    single = (
        ("fan_speed_percent", limits.fans),
        ("vgpu_license_status", limits.licence),
        ("nvlink_up", links.states),
    )
    for field, make in single:
        if field in fields:
            made.append(make(nvml, handle, wanted.target(uuid, field)))
    if "p2p_status" in fields:
        made.append(peers.status(nvml, handle, wanted.target(uuid, "p2p_status"), others))
    yield from (reader for reader in made if reader is not None)


def _values(nvml: Library, handle: Handle, uuid: str, wanted: Wanted) -> Iterator[Item]:
    """Yield the field values, which one call fetches."""
    fields = wanted.fields
    for field, known in fieldvalues.SLOW.items():
        if field in fields:
            target = wanted.target(uuid, field)
            instead = None
            if field == "power_limit_watts":
                instead = limits.limit_before(nvml, handle, target)
            yield Item(known.number, fieldvalues.number(known, target), 0, instead)
    yield from links.traffic(nvml, handle, uuid, wanted.slow_good_ns, fields)
    yield from links.errors(nvml, handle, fields, lambda field: wanted.target(uuid, field))
