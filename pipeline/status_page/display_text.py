"""Format numbers and names of a status document as text."""

from typing import Final

from pipeline.model import PartialRef
from pipeline.status_page.status_document import (
    DeviceStatus,
    GpuStatus,
    HolderStatus,
    InstanceStatus,
)

UNKNOWN: Final = "unknown"

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def span(seconds: float) -> str:
    """Return a duration in one unit, rounded down: `12 s`, `3 min`, `2 h`, `5 d`."""
    whole = int(max(seconds, 0))
    return next((f"{whole // size} {unit}" for unit, size in _UNITS if whole >= size), "0 s")


def size(count: int) -> str:
    """Return a number of bytes in one unit: `512 MiB`, `79.6 GiB`."""
    if not count:
        return "0 B"
    if count < 1 << 20:
        return f"{count / 1024:.0f} KiB"
    if count < 1 << 30:
        return f"{count / (1 << 20):.0f} MiB"
    return f"{count / (1 << 30):.1f} GiB"


def amount(count: int) -> str:
    """Return a count with separated thousands: `1 234 567`."""
    return f"{count:,}".replace(",", "\N{NO-BREAK SPACE}")


def hours(seconds: float) -> str:
    """Return a duration in hours: `12.3 h`; `<0.1 h` for a short one that is not 0."""
    return f"{_least(seconds / 3600, 1)}\N{NO-BREAK SPACE}h"


def kilowatt_hours(joules: float) -> str:
    """Return an energy in kilowatt hours: `3.45 kWh`; `<0.01 kWh` for a small one that is not 0."""
    return f"{_least(joules / 3.6e6, 2)}\N{NO-BREAK SPACE}kWh"


def _least(figure: float, digits: int) -> str:
    if figure and not round(figure, digits):
        least = f"{10**-digits:.{digits}f}"
        return f"<{least}" if figure > 0 else f">-{least}"
    return f"{figure:.{digits}f}"


def holder_name(holder: HolderStatus | PartialRef) -> str:
    """Return `namespace/pod (container)`, as far as it is known."""
    pod = holder.pod or (f"uid {holder.uid}" if holder.uid else UNKNOWN)
    whole = f"{holder.namespace}/{pod}" if holder.namespace else pod
    return f"{whole} ({holder.container})" if holder.container else whole


def share_text(holder: HolderStatus) -> str:
    """Return the share of a holder: `50 %`, `2 replicas`; empty for all of it, or if unknown."""
    if holder.share is not None:
        return "" if holder.share == 1 else f"{holder.share * 100:.3g} %"
    if holder.replicas is not None:
        return f"{holder.replicas} replica{'s' if holder.replicas > 1 else ''}"
    return ""


def gpu_name(gpu: GpuStatus) -> str:
    """Return `GPU 3`, or the UUID if the GPU has no index."""
    return gpu.uuid if gpu.index is None else f"GPU {gpu.index}"


def placement_text(instance: InstanceStatus) -> str:
    """Return the placement of an instance on its GPU: `GI 7, CI 0`."""
    where = f"GI {instance.gpu_instance_id}"
    ci = instance.compute_instance_id
    return where if ci is None else f"{where}, CI {ci}"


def memory(device: DeviceStatus) -> str:
    """Return `40.2 of 79.6 GiB`, as far as it is known."""
    used, total = device.memory_used_bytes, device.memory_total_bytes
    if used is None:
        return UNKNOWN if total is None else f"? of {size(total)}"
    if total is None:
        return size(used)
    first, second = size(used), size(total)
    if not used or first.split()[1] == second.split()[1]:
        first = first.split()[0]
    return f"{first} of {second}"


def part(some: float | None, whole: float | None) -> float | None:
    """Return a fraction from 0 to 1; None if it is unknown."""
    if some is None or not whole:
        return None
    return min(max(some / whole, 0.0), 1.0)


def unheld_text(device: DeviceStatus) -> str:
    """Return the text for a device without known holders. A lost device is not free."""
    if device.holders is None:
        return UNKNOWN
    return "free" if device.state == "up" else "not held"


def conflicts_text(device: DeviceStatus) -> str:
    """Return how many pods have conflicting claims; empty if none has."""
    count = device.conflicts
    if not count:
        return ""
    return f"claims of {count} pod{'s' if count > 1 else ''} conflict with others"


def access_text(device: DeviceStatus) -> str:
    """Return how many containers have access without holding the device; empty if none has."""
    count = len(device.access) + device.access_left_out
    if not count:
        return ""
    return f"{count} more container{'s have' if count > 1 else ' has'} access without holding it"


def unresolved_text(count: int) -> str:
    """Return how many ids match no device; empty if all do."""
    if not count:
        return ""
    return "1 id that matches no device" if count == 1 else f"{count} ids that match no device"


def held(gpu: GpuStatus) -> str:
    """Return how many of a GPU's instances are held: `5 of 7 instances held`."""
    known = [instance.holders for instance in gpu.instances if instance.holders is not None]
    count = len(gpu.instances)
    several = f"{count} instance{'s' if count > 1 else ''}"
    if not known:
        return several
    return f"{sum(1 for holders in known if holders)} of {several} held"
