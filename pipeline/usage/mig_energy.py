"""Division of a GPU's energy among its MIG instances."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pipeline.model import Device
from pipeline.model.devices import compute_slices
from pipeline.usage.apportionment import apportion
from pipeline.usage.interval_samples import IntervalUsage

COMPUTE_SLICES: Final = 7
"""Compute slices of a whole GPU."""


def instances_by_gpu(devices: Iterable[Device]) -> Mapping[str, Mapping[str, int]]:
    """Return, for the uuid of each GPU with MIG instances, the compute slices of each instance.

    An instance with an unknown profile counts as 1 slice.
    """
    found: dict[str, dict[str, int]] = {}
    for device in devices:
        if device.mig is not None:
            of_gpu = found.setdefault(device.mig.parent_uuid, {})
            of_gpu[device.uuid] = compute_slices(device.mig.profile) or 1
    return found


def split_gpu_energy(
    total: int, idle: int, parts: Sequence[tuple[int, IntervalUsage]], unused_slices: int
) -> tuple[list[tuple[int, int]], int]:
    """Split the energy of a GPU among its MIG instances.

    Idle energy is split by slices, the rest by busy time multiplied by slices. If the busy time of
    an instance is unknown, or all are 0, all energy is split by slices.

    Args:
        total: energy in millijoules.
        idle: the part that an idle GPU would have used.
        parts: the number of slices and the usage of each instance that has samples.
        unused_slices: slices of the GPU that belong to none of these instances.

    Returns:
        The energy of each instance with the idle part of it; and the energy of the unused slices.
    """
    times = [interval.busy_ns for _, interval in parts]
    known = [0 if time is None else time for time in times]
    if None in times or not any(known):
        idle = total
    weights = [number for number, _ in parts]
    *idles, left = apportion(idle, [*weights, unused_slices]) if idle else [0] * (len(parts) + 1)
    busy = [number * time for number, time in zip(weights, known, strict=True)]
    rests = apportion(total - idle, busy) if total > idle else [0] * len(parts)
    shares = [(idle + rest, idle) for idle, rest in zip(idles, rests, strict=True)]
    return shares, left
