"""What a device's account has gained between two moments. Pure, and exact.

For held time, busy time and energy: what the device gained is what its containers gained, and the
rest, which is nobody's. The rest is never negative, since no total ever falls: of a container that
is kept no more, what it had is among the forgotten ones' total, which has risen by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.model import ContainerUsage, DeviceUsage, Instant, PartialRef

Amounts: TypeAlias = tuple[int, int | None, int | None]
"""Held time, busy time and energy; None where it was never known."""


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """What was gained between two moments.

    Attributes:
        parts: by container, those that gained nothing left out; None is nobody, always there.
        time_ns: how long that was: the end of the span between the two.
        gap_ns: what lies before it, of which there is no account.
        unknown_ns: of what is nobody's of the time, the part for which it isn't known who held the
            device.
    """

    parts: Mapping[PartialRef | None, Amounts]
    time_ns: int
    gap_ns: int
    unknown_ns: int = 0


def same_account(before: DeviceUsage, now: DeviceUsage) -> bool:
    """Whether the one goes on from the other."""
    return before.id == now.id


def usage_delta(
    before: DeviceUsage | None, now: DeviceUsage, since: Instant, *, has_instances: bool
) -> UsageDelta | None:
    """Return what an account has gained.

    Args:
        before: the account as it was; None where all that there is now counts.
        now: the account as it is.
        since: the moment up to which all is told already.
        has_instances: a GPU that carries MIG instances: it has no time of its own, and so no gaps.

    Returns:
        None if a total has fallen: then nothing can be said.
    """
    passed_ns = max(now.at.mono_ns - since.mono_ns, 0)
    time_ns = now.elapsed_ns - (before.elapsed_ns if before is not None else 0)
    known = {} if before is None else {one.id: one for one in before.containers}
    parts: dict[PartialRef | None, Amounts] = {}
    held, busy, energy = (
        time_ns,
        _increase(before, now, "busy_ns"),
        _increase(before, now, "energy_mj"),
    )
    for one in now.containers:
        amounts = _container_increase(
            [known[own_id] for own_id in (one.id, *one.absorbed) if own_id in known], one
        )
        amounts = (
            amounts[0],
            None if busy is None else amounts[1],
            None if energy is None else amounts[2],
        )
        if any(amount is not None and amount < 0 for amount in amounts):
            return None
        held -= amounts[0]
        busy = None if busy is None else busy - (amounts[1] or 0)
        energy = None if energy is None else energy - (amounts[2] or 0)
        if any(amounts):
            parts[one.subject] = amounts
    unknown = now.unknown_ns - (before.unknown_ns if before is not None else 0)
    if min(time_ns, held, busy or 0, energy or 0, unknown) < 0:
        return None
    parts[None] = held, busy, energy
    unknown = min(unknown, held)
    if has_instances:
        return UsageDelta(parts, time_ns or passed_ns, 0, unknown)
    return UsageDelta(parts, time_ns, max(passed_ns - time_ns, 0), unknown)


def _increase(before: DeviceUsage | None, now: DeviceUsage, name: str) -> int | None:
    value, known = getattr(now, name), None if before is None else getattr(before, name)
    if value is None:
        return None if known is None else -1
    return int(value - (known or 0))


def _container_increase(before: Sequence[ContainerUsage], now: ContainerUsage) -> Amounts:
    """Return what a container has gained; one that was forgotten meanwhile begins from 0 again.

    Args:
        before: what it was before, in parts where a part of its name was missing.
        now: what it is now.
    """
    busy = sum(one.busy_ns or 0 for one in before)
    energy = sum(one.energy_mj or 0 for one in before)
    return (
        now.held_ns - sum(one.held_ns for one in before),
        None if now.busy_ns is None else now.busy_ns - busy,
        None if now.energy_mj is None else now.energy_mj - energy,
    )
