"""Format the numbers and names of a status document as text."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from pipeline.model import PartialRef, owner_kind, owner_text
from pipeline.status_page.status_document import (
    DeviceStatus,
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    StatusDocument,
)
from pipeline.status_page.usage_format import AmountsStatus
from pipeline.status_page.use_format import ContainerStatus, UseStatus

UNKNOWN: Final = "unknown"

IDLE_PERCENT: Final = 1.0
"""Mean utilisation below which a device counts as idle in a step of its history."""

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))

_HOURS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0))

_DIGITS: Final = 3
"""Number of significant digits of an energy."""

_MOST_DECIMALS: Final = 4
"""Maximum number of decimals of an energy: a tenth of a watt hour."""


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
    """Return a duration in hours: `12.3 h`; `2.4 min`, `0.3 s` if it would be rounded to 0."""
    return _measured(seconds, _HOURS, 1)


def kilowatt_hours(joules: float) -> str:
    """Return an energy in kilowatt hours: `345 kWh`, `3.45 kWh`, `0.0345 kWh`, `<0.0001 kWh`.

    The unit is always the same, so that the energies of a column can be compared.
    """
    found = joules / 3.6e6
    if not found:
        text = "0"
    elif abs(found) < 10**-_MOST_DECIMALS:
        text = _too_small(found, _MOST_DECIMALS)
    else:
        whole_digits = math.floor(math.log10(abs(found))) + 1
        text = f"{found:.{min(max(_DIGITS - whole_digits, 0), _MOST_DECIMALS)}f}"
    return f"{text}\N{NO-BREAK SPACE}kWh"


def _measured(figure: float, units: Sequence[tuple[str, float]], digits: int) -> str:
    """Return a number in the first unit in which it is not rounded to 0; else `<0.1 s`."""
    name, size = next((each for each in units if round(figure / each[1], digits)), units[-1])
    if not figure:
        name, size = units[0]
    found = figure / size
    text = f"{found:.{digits}f}"
    if figure and not round(found, digits):
        text = _too_small(figure, digits)
    return f"{text}\N{NO-BREAK SPACE}{name}"


def _too_small(figure: float, digits: int) -> str:
    """Return the text for a number that would be rounded to 0: `<0.1`, `>-0.1`."""
    return f"{'<' if figure > 0 else '>-'}{10**-digits:.{digits}f}"


def holder_name(holder: ContainerStatus | PartialRef) -> str:
    """Return `namespace/pod (container)`, without the parts that are unknown.

    Of a job, and of a container without a pod: `job 1234`, `container trainer`.
    """
    whole = owner_name(holder.namespace, holder.pod, holder.uid)
    return f"{whole} ({holder.container})" if holder.container else whole


def owner_name(namespace: str | None, name: str | None, uid: str | None) -> str:
    """Return `namespace/pod`, `job 1234` or `container trainer`, without unknown parts."""
    if name and uid and owner_kind(uid) != "pod":
        return owner_text(namespace or "", name, uid)
    pod = name or (f"uid {uid}" if uid else UNKNOWN)
    return f"{namespace}/{pod}" if namespace else pod


def word_for_owners(uids: Iterable[str | None]) -> str:
    """Return `pod`, `job` or `container` if all owners are of this kind, `owner` for a mixture.

    Args:
        uids: the UIDs of the owners; an unknown one is that of a pod. Without any, they are pods.
    """
    kinds = {owner_kind(uid or "") for uid in uids} or {"pod"}
    return kinds.pop() if len(kinds) == 1 else "owner"


_SHOWN_FACTS: Final = (
    "user",
    "account",
    "partition",
    "compose_project",
    "compose_service",
    "image",
)


def facts_text(holder: HolderStatus) -> str:
    """Return what is known of a job or a podless container: `user alice`; empty for a pod."""
    known = holder.facts or {}
    shown = [f"{name.replace('_', ' ')} {known[name]}" for name in _SHOWN_FACTS if name in known]
    return ", ".join(shown)


def share_text(holder: HolderStatus) -> str:
    """Return the share of a holder: `50 %` or `2 replicas`; empty for a whole or unknown share."""
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
    """Return used and total memory: `40.2 of 79.6 GiB`, as far as they are known."""
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
    """Return a part of a whole as a fraction from 0 to 1; None if it is unknown."""
    if some is None or not whole:
        return None
    return min(max(some / whole, 0.0), 1.0)


def short_uuid(uuid: str) -> str:
    """Return the first part of a UUID, which distinguishes the GPUs of a node: `GPU-5c1d2e3f`."""
    kind, dash, rest = uuid.partition("-")
    start = rest.partition("-")[0]
    # An old name of an instance contains the UUID of its GPU, which does not distinguish it.
    return f"{kind}-{start}" if dash and start and start != "GPU" else uuid


def unknown_reason(device: DeviceStatus, what: str) -> str:
    """Return why a value of a device is unknown.

    Args:
        device: the device.
        what: `utilization`, `memory`, `power`, `temperature` or `holders`.
    """
    if what == "holders":
        return "no source reports holders"
    if device.state == "lost":
        return "it does not respond"
    if what == "utilization":
        if isinstance(device, InstanceStatus):
            return "needs a profiling field"
        if isinstance(device, GpuStatus) and device.instances:
            return "see its instances"
    return "no source reads it"


def idle_seconds(device: DeviceStatus) -> int:
    """Return for how long a device has been idle, from a minute on; else, or if unknown, 0."""
    if device.history is None:
        return 0
    steps = 0
    for value in reversed(device.history.utilization_percent):
        if value is None or value >= IDLE_PERCENT:
            break
        steps += 1
    seconds = steps * device.history.step_seconds
    return seconds if seconds >= 2 * device.history.step_seconds else 0


def unheld_text(device: DeviceStatus) -> str:
    """Return the text for a device without listed holders. A lost device is not called free."""
    if device.holders is None:
        return UNKNOWN
    return "free" if device.state == "up" else "not held"


CONFLICT: Final = "claims of pods contradict each other"


def conflicts_text(device: DeviceStatus) -> str:
    """Return a text if claims of pods on a device contradict each other; else an empty text."""
    return CONFLICT if device.conflicts else ""


def access_text(device: DeviceStatus) -> str:
    """Return a text with the number of containers that have access and do not hold the device.

    Empty if there are none.
    """
    count = len(device.access) + device.access_left_out
    if not count:
        return ""
    return f"{count} more container{'s have' if count > 1 else ' has'} access without holding it"


def unresolved_text(count: int) -> str:
    """Return a text with the number of ids that match no device; empty if there are none."""
    if not count:
        return ""
    return "1 id that matches no device" if count == 1 else f"{count} ids that match no device"


def held(gpu: GpuStatus) -> str:
    """Return how many of a GPU's instances are held: `5 of 7 instances held`.

    If it is unknown which are held, return only their number.
    """
    known = [instance.holders for instance in gpu.instances if instance.holders is not None]
    count = len(gpu.instances)
    several = f"{count} instance{'s' if count > 1 else ''}"
    if not known:
        return several
    return f"{sum(1 for holders in known if holders)} of {several} held"


def device_name(gpu: GpuStatus, instance: InstanceStatus) -> str:
    """Return the name of an instance with that of its GPU: `GPU 3 1g.10gb GI 7, CI 0`."""
    return f"{gpu_name(gpu)} {instance.profile or 'MIG'} {placement_text(instance)}"


def summary(status: StatusDocument) -> str:
    """Return a text with the number of GPUs by state: `8 GPUs: 7 up, 1 lost; 56 MIG instances`."""
    if status.gpus is None:
        return "no GPU is known"
    count = len(status.gpus)
    states = [gpu.state for gpu in status.gpus]
    counts_text = ", ".join(
        f"{states.count(state)} {state}" for state in ("up", "lost", "unknown") if state in states
    )
    instances = sum(len(gpu.instances) for gpu in status.gpus)
    whole = f"{count} GPU{'' if count == 1 else 's'}" + (f": {counts_text}" if counts_text else "")
    if not instances:
        return whole
    return f"{whole}; {instances} MIG instance{'' if instances == 1 else 's'}"


def busy_text(use: UseStatus, sign: str) -> str | None:
    """Return how busy a container kept a device: `41%`, `41% ±4`; None if unknown.

    `±` has the bound of the error of the split of a shared device, rounded up. `~41%` has an
    unknown error.

    Args:
        use: what the container uses.
        sign: the percent sign, possibly with a blank before it.
    """
    if use.busy_percent is None:
        return None
    text = f"{use.busy_percent:.0f}{sign}"
    if use.busy_error_percent is None:
        return f"~{text}"
    return f"{text} ±{math.ceil(use.busy_error_percent)}" if use.busy_error_percent else text


def busy_hours(usage: AmountsStatus) -> str | None:
    """Return a busy time: `12.3 h`, `12.3 h ±0.4 h` where devices were shared; None if unknown."""
    if usage.busy_seconds is None:
        return None
    text = hours(usage.busy_seconds)
    error = usage.busy_error_seconds
    return f"{text}\N{NO-BREAK SPACE}±{hours(error)}" if error else text


def whole_percent(part: float) -> str:
    """Return a part in whole percent, without the sign; one that is not 0 is not shown as 0."""
    percent = round(part * 100)
    return f"{percent}" if percent or not part else "<1"
