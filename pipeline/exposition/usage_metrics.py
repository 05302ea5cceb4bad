"""What is told of who used how much: the families, and where their values stand.

The same table serves the page and those who push: a quantity is in whole units of the account
(bytes, nanoseconds, millijoules) and is divided for those who read it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from pipeline.model import NS, Attribution, ContainerUsage, DeviceUsage, Snapshot

Account = TypeVar("Account", ContainerUsage, DeviceUsage)

_MODEL: Final = "by a model: idle draw by time held, the rest by time busy"


@dataclass(frozen=True, slots=True)
class Quantity(Generic[Account]):
    """A family of the account.

    Attributes:
        metric: its name on the page.
        kind: its type.
        about: one sentence.
        value: reads it off an account; None where it is unknown.
        divisor: what it reads, divided by this, is in the family's unit.
        of_time: it is counted by time, so a GPU that carries MIG instances has none of its own.
    """

    metric: str
    kind: Literal["gauge", "counter"]
    about: str
    value: Callable[[Account], int | None]
    divisor: int = 1
    of_time: bool = False


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A counter of containers that is told apart by something of which there may be any number.

    Attributes:
        metric: its name on the page.
        about: one sentence.
        label: what it is told apart by.
        values: reads (label's value, count) off an account.
        kind: its type.
        divisor: what it reads is in the family's unit.
    """

    metric: str
    about: str
    label: str
    values: Callable[[ContainerUsage], Iterable[tuple[str, int]]]
    kind: Literal["counter"] = "counter"
    divisor: Literal[1] = 1


CONTAINER: Final[tuple[Quantity[ContainerUsage], ...]] = (
    Quantity(
        "podgpu_container_memory_used_bytes",
        "gauge",
        "Device memory that the container's processes have.",
        lambda used: used.memory_bytes,
    ),
    Quantity(
        "podgpu_container_busy_seconds_total",
        "counter",
        "Time for which the container's processes kept the device busy.",
        lambda used: used.busy_ns,
        NS,
    ),
    Quantity(
        "podgpu_container_held_seconds_total",
        "counter",
        "Time for which the container held the device, by the part of it that it held.",
        lambda used: used.held_ns,
        NS,
    ),
    Quantity(
        "podgpu_container_energy_joules_total",
        "counter",
        f"Energy of the GPU that falls to the container, {_MODEL}.",
        lambda used: used.energy_mj,
        1000,
    ),
)
"""Of a container on a device."""

CONTAINER_XIDS: Final = Breakdown(
    "podgpu_container_xid_errors_total",
    "XID errors on the device while the container held or used it; a series begins with an error.",
    "xid",
    lambda used: [(str(code), count) for code, count in used.xids],
)
"""Of a container on a device, by code: a code that never came up has no sample."""

DEVICE: Final[tuple[Quantity[DeviceUsage], ...]] = (
    Quantity(
        "podgpu_device_unattributed_memory_used_bytes",
        "gauge",
        "Device memory in use that no container is known to have, nor the driver for itself.",
        lambda used: used.memory_unattributed_bytes,
    ),
    Quantity(
        "podgpu_device_unattributed_busy_seconds_total",
        "counter",
        "Time for which the device was busy with what no container is known to have done.",
        lambda used: used.busy_unattributed_ns,
        NS,
    ),
    Quantity(
        "podgpu_device_unattributed_held_seconds_total",
        "counter",
        "Time for which nobody is known to have held the device, by the part of it.",
        lambda used: used.unheld_ns,
        NS,
        of_time=True,
    ),
    Quantity(
        "podgpu_device_free_seconds_total",
        "counter",
        "Time for which the device was free, by the part of it that was free.",
        lambda used: used.unheld_ns - used.unknown_ns,
        NS,
        of_time=True,
    ),
    Quantity(
        "podgpu_device_unknown_held_seconds_total",
        "counter",
        "Time for which it is not known who held the device, by the part of it.",
        lambda used: used.unknown_ns,
        NS,
        of_time=True,
    ),
    Quantity(
        "podgpu_device_unattributed_energy_joules_total",
        "counter",
        f"Energy of the GPU that falls to no container, {_MODEL}.",
        lambda used: used.energy_unattributed_mj,
        1000,
    ),
    Quantity(
        "podgpu_device_busy_seconds_total",
        "counter",
        "Time for which the device was busy, whoever kept it so.",
        lambda used: used.busy_ns,
        NS,
    ),
    Quantity(
        "podgpu_device_accounted_seconds_total",
        "counter",
        "Time for which there is an account of who used and held the device.",
        lambda used: used.elapsed_ns,
        NS,
        of_time=True,
    ),
)
"""Of a device."""

Family: TypeAlias = Quantity[ContainerUsage] | Quantity[DeviceUsage] | Breakdown

USAGE_FAMILIES: Final[tuple[Family, ...]] = (*CONTAINER, CONTAINER_XIDS, *DEVICE)
"""All of them, in the order of the page."""


def accounts(
    snapshot: Snapshot,
) -> Iterator[tuple[Attribution, DeviceUsage, tuple[Quantity[DeviceUsage], ...]]]:
    """Yield the accounts of those devices that are known, and what is told of each device.

    A GPU that carries MIG instances is held through them: it has energy of its own alone, and the
    time in which nobody holds it says nothing.

    Args:
        snapshot: one with usage or without.
    """
    if snapshot.usage is None:
        return
    attributions = snapshot.layout.attributions
    carriers = {
        held.device.mig.parent_uuid for held in attributions.values() if held.device.mig is not None
    }
    timeless = tuple(found for found in DEVICE if not found.of_time)
    for uuid, used in snapshot.usage.devices.items():
        attribution = attributions.get(uuid)
        if attribution is not None:
            yield attribution, used, timeless if uuid in carriers else DEVICE
