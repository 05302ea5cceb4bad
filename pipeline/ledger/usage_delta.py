"""What a device's account gained between two moments. Pure and exact.

The gain of a device is the sum of its containers' gains and an unattributed rest, for held time,
busy time and energy. The rest is never negative, because totals never decrease: if a container is
removed from the account, its totals are added to those of the forgotten containers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.model import ContainerUsage, DeviceUsage, Instant, PartialRef


class Amounts(NamedTuple):
    """Amounts of a container, or of the unattributed usage.

    Attributes:
        held_ns: held time.
        busy_ns: busy time; None if it was never known.
        energy_mj: energy in millijoules; None if it was never known.
        contested_ns: see `ContainerUsage`; None if it is unknown for a part of the busy time, and
            for unattributed usage.
        switching_ns: the same.
    """

    held_ns: int
    busy_ns: int | None
    energy_mj: int | None
    contested_ns: int | None = None
    switching_ns: int | None = None


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """The gain of an account between two moments.

    Attributes:
        parts: gains by container, without containers that gained nothing. The key None, which is
            always present, is the unattributed gain.
        time_ns: the counted time in nanoseconds, at the end of the span between the two moments.
        gap_ns: the time before the counted time that was not counted, in nanoseconds.
        unknown_ns: the part of the unattributed held time for which it is unknown who held the
            device, in nanoseconds.
    """

    parts: Mapping[PartialRef | None, Amounts]
    time_ns: int
    gap_ns: int
    unknown_ns: int = 0


def usage_delta(
    before: DeviceUsage | None, now: DeviceUsage, since: Instant, *, has_instances: bool
) -> UsageDelta | None:
    """Return the gain of an account between two states.

    Args:
        before: the earlier state of the account; None if all of `now` counts.
        now: the current state of the account.
        since: the time up to which everything is written already.
        has_instances: whether the device is a GPU with MIG instances. Its held time is that of its
            instances, and therefore it has no gaps.

    Returns:
        The gain; None if a total has decreased, so that the gain is unknown.
    """
    passed_ns = max(now.at.mono_ns - since.mono_ns, 0)
    time_ns = now.elapsed_ns - (before.elapsed_ns if before is not None else 0)
    earlier = {} if before is None else {one.id: one for one in before.containers}
    parts: dict[PartialRef | None, Amounts] = {}
    held = time_ns
    busy, energy = _increase(before, now, "busy_ns"), _increase(before, now, "energy_mj")
    for one in now.containers:
        # A container that was forgotten and returned starts from 0. There are several earlier
        # states if a part of its name was missing.
        states = [earlier[own_id] for own_id in (one.id, *one.absorbed) if own_id in earlier]
        amounts = Amounts(
            one.held_ns - sum(each.held_ns for each in states),
            None if busy is None else _since(one.busy_ns, [each.busy_ns for each in states]),
            None if energy is None else _since(one.energy_mj, [each.energy_mj for each in states]),
            _contest("contested_ns", one, states),
            _contest("switching_ns", one, states),
        )
        if any(amount is not None and amount < 0 for amount in amounts):
            return None
        held -= amounts.held_ns
        busy = None if busy is None else busy - (amounts.busy_ns or 0)
        energy = None if energy is None else energy - (amounts.energy_mj or 0)
        # Not for contested time alone: that of a process which waits beside others.
        if any(amounts[:3]):
            parts[one.subject] = amounts
    unknown = now.unknown_ns - (before.unknown_ns if before is not None else 0)
    if min(time_ns, held, busy or 0, energy or 0, unknown) < 0:
        return None
    parts[None] = Amounts(held, busy, energy)
    unknown = min(unknown, held)
    if has_instances:
        return UsageDelta(parts, time_ns or passed_ns, 0, unknown)
    return UsageDelta(parts, time_ns, max(passed_ns - time_ns, 0), unknown)


def _increase(before: DeviceUsage | None, now: DeviceUsage, name: str) -> int | None:
    value, earlier = getattr(now, name), None if before is None else getattr(before, name)
    if value is None:
        return None if earlier is None else -1
    return int(value - (earlier or 0))


def _contest(name: str, one: ContainerUsage, states: Sequence[ContainerUsage]) -> int | None:
    if one.busy_ns is None:
        return 0
    return _since(getattr(one, name), [getattr(each, name) for each in states])


def _since(value: int | None, earlier: Sequence[int | None]) -> int | None:
    return None if value is None else value - sum(each or 0 for each in earlier)
