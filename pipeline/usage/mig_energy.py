"""The energy of a GPU that carries MIG instances, split among them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pipeline.model import Device
from pipeline.usage.apportionment import apportion
from pipeline.usage.interval_samples import IntervalUsage

COMPUTE_SLICES: Final = 7
"""Compute slices of a GPU."""

_NUMBER: Final = re.compile(r"[0-9]{1,3}")


class EnergyShare(NamedTuple):
    """What an instance has of its GPU's energy, in millijoules.

    Attributes:
        idle: of what the GPU draws when idle.
        rest: of what it draws beyond that.
    """

    idle: int
    rest: int


def compute_slices(profile: str) -> int:
    """Return how many compute slices an instance of a profile has: `3g.40gb`, `1c.3g.40gb`.

    One whose profile isn't known counts as the smallest.
    """
    found = _NUMBER.search(profile)
    return max(int(found[0]), 1) if found else 1


def instances_by_gpu(devices: Iterable[Device]) -> Mapping[str, Mapping[str, int]]:
    """Return by the uuid of each GPU that carries MIG instances their uuids and slices."""
    found: dict[str, dict[str, int]] = {}
    for device in devices:
        if device.mig is not None:
            of_gpu = found.setdefault(device.mig.parent_uuid, {})
            of_gpu[device.uuid] = compute_slices(device.mig.profile)
    return found


def split_gpu_energy(
    total: int, idle: int, parts: Sequence[tuple[int, IntervalUsage]], unused_slices: int
) -> tuple[list[EnergyShare], int]:
    """Split the energy of a GPU among its instances.

    What it draws when idle goes by slices, the rest by busy time times slices. Where nothing was
    busy, or that isn't known of an instance, all of it goes by slices.

    Args:
        total: in millijoules.
        idle: of it, what the GPU would have drawn anyway.
        parts: of each instance that was looked at its slices, and what the time brought.
        unused_slices: slices that no such instance has.

    Returns:
        What each instance has, and what none has.
    """
    times = [interval.busy_ns for _, interval in parts]
    known = [0 if time is None else time for time in times]
    if None in times or not any(known):
        idle = total
    weights = [number for number, _ in parts]
    *idles, left = apportion(idle, [*weights, unused_slices]) if idle else [0] * (len(parts) + 1)
    busy = [number * time for number, time in zip(weights, known, strict=True)]
    rests = apportion(total - idle, busy) if total > idle else [0] * len(parts)
    return [EnergyShare(*both) for both in zip(idles, rests, strict=True)], left
