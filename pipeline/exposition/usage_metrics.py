"""The usage metrics, and how to read their values from the accounts.

All sinks use this table. Accounts count in integers (bytes, nanoseconds, millijoules); the divisor
converts them to the unit of the metric.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from pipeline.model import NS, Attribution, ContainerUsage, DeviceUsage, Snapshot

Account = TypeVar("Account", ContainerUsage, DeviceUsage)

_MODEL: Final = "estimated: idle power by held time, the rest by busy time"


@dataclass(frozen=True, slots=True)
class Quantity(Generic[Account]):
    """A metric with one value per account.

    Attributes:
        metric: name of the metric in Prometheus.
        kind: type of the metric.
        about: help text, one sentence.
        value: return the value of an account; None if it is unknown.
        divisor: the value divided by this is in the unit of the metric.
        of_time: the value counts time. A GPU with MIG instances does not have it.
    """

    metric: str
    kind: Literal["gauge", "counter"]
    about: str
    value: Callable[[Account], int | None]
    divisor: int = 1
    of_time: bool = False


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A counter of containers with an additional label that can have any number of values.

    Attributes:
        metric: name of the metric in Prometheus.
        about: help text, one sentence.
        label: name of the additional label.
        values: return (label value, count) pairs of an account.
        kind: type of the metric.
        divisor: always 1.
    """

    metric: str
    about: str
    label: str
    values: Callable[[ContainerUsage], Iterable[tuple[str, int]]]
    kind: Literal["counter"] = "counter"
    divisor: Literal[1] = 1


def _seconds(
    metric: str, about: str, value: Callable[[Account], int | None], *, of_time: bool = False
) -> Quantity[Account]:
    return Quantity(metric, "counter", about, value, NS, of_time)


CONTAINER: Final[tuple[Quantity[ContainerUsage], ...]] = (
    Quantity(
        "podgpu_container_memory_used_bytes",
        "gauge",
        "Device memory used by the container's processes.",
        lambda used: used.memory_bytes,
    ),
    _seconds(
        "podgpu_container_busy_seconds_total",
        "Time during which the container's processes kept the device busy.",
        lambda used: used.busy_ns,
    ),
    _seconds(
        "podgpu_container_held_seconds_total",
        "Time during which the container held the device, multiplied by its share.",
        lambda used: used.held_ns,
    ),
    Quantity(
        "podgpu_container_energy_joules_total",
        "counter",
        f"Energy of the GPU attributed to the container ({_MODEL}).",
        lambda used: used.energy_mj,
        1000,
    ),
)
"""Metrics of a container on a device."""

CONTAINER_XIDS: Final = Breakdown(
    "podgpu_container_xid_errors_total",
    "XID errors on the device while the container held or used it; no series before the first.",
    "xid",
    lambda used: [(str(code), count) for code, count in used.xids],
)
"""XID errors of a container on a device, by code. A code that never occurred has no sample."""

DEVICE: Final[tuple[Quantity[DeviceUsage], ...]] = (
    Quantity(
        "podgpu_device_unattributed_memory_used_bytes",
        "gauge",
        "Device memory in use, neither of a known container nor reserved by the driver.",
        lambda used: used.memory_unattributed_bytes,
    ),
    _seconds(
        "podgpu_device_unattributed_busy_seconds_total",
        "Time during which the device was busy with work of no known container.",
        lambda used: used.busy_unattributed_ns,
    ),
    _seconds(
        "podgpu_device_unattributed_held_seconds_total",
        "Time during which no known container held the device, multiplied by the share not held.",
        lambda used: used.unheld_ns,
        of_time=True,
    ),
    _seconds(
        "podgpu_device_free_seconds_total",
        "Time during which the device was free, multiplied by the free share.",
        lambda used: used.unheld_ns - used.unknown_ns,
        of_time=True,
    ),
    _seconds(
        "podgpu_device_unknown_held_seconds_total",
        "Time during which it is unknown who held the device, multiplied by the unknown share.",
        lambda used: used.unknown_ns,
        of_time=True,
    ),
    Quantity(
        "podgpu_device_unattributed_energy_joules_total",
        "counter",
        f"Energy of the GPU attributed to no known container ({_MODEL}).",
        lambda used: used.energy_unattributed_mj,
        1000,
    ),
    _seconds(
        "podgpu_device_busy_seconds_total",
        "Time during which any process kept the device busy.",
        lambda used: used.busy_ns,
    ),
    _seconds(
        "podgpu_device_accounted_seconds_total",
        "Time covered by the usage account of the device, without gaps.",
        lambda used: used.elapsed_ns,
        of_time=True,
    ),
)
"""Metrics of a device."""

Family: TypeAlias = Quantity[ContainerUsage] | Quantity[DeviceUsage] | Breakdown

USAGE_FAMILIES: Final[tuple[Family, ...]] = (*CONTAINER, CONTAINER_XIDS, *DEVICE)
"""All usage metrics, in the order of the page."""


def accounts(
    snapshot: Snapshot,
) -> Iterator[tuple[Attribution, DeviceUsage, tuple[Quantity[DeviceUsage], ...]]]:
    """Yield the usage account of each known device, and the metrics to show for it.

    A GPU with MIG instances is held through its instances, so its own held and free time have no
    meaning. The metrics with `of_time` are left out for it.

    Args:
        snapshot: the snapshot to read; it may have no usage.
    """
    if snapshot.usage is None:
        return
    attributions = snapshot.layout.attributions
    carriers = {
        held.device.mig.parent_uuid for held in attributions.values() if held.device.mig is not None
    }
    without_time = tuple(quantity for quantity in DEVICE if not quantity.of_time)
    for uuid, used in snapshot.usage.devices.items():
        attribution = attributions.get(uuid)
        if attribution is not None:
            yield attribution, used, without_time if uuid in carriers else DEVICE
