"""Accounts as the ledger keeps them to go on from: text and back, without loss."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from pipeline.model import DeviceUsage, Instant, TotalsRestored

_MOST: Final = 1 << 62
"""No total is as large: 2**62 ns are 146 years."""

_MOST_BYTE_NS: Final = 1 << 112
"""No integral of memory over time is as large: a petabyte for as long."""


def dump(usage: DeviceUsage) -> str:
    """Return an account as JSON, in ASCII: names may hold bytes that were no UTF-8."""
    return json.dumps(msgspec.to_builtins(usage), separators=(",", ":"))


def load(device: str, text: str) -> DeviceUsage:
    """Return the account of a device.

    Raises:
        ValueError: it is none, or its parts don't come to the whole.
    """
    try:
        told = json.loads(text)
        usage = msgspec.convert(told, DeviceUsage)
        possible = _possible(told)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if usage.device != device or not possible or not _sound(usage):
        raise ValueError("the parts of the account don't come to the whole")
    return usage


def _possible(told: Any, name: str = "") -> bool:
    """Whether each number is one that can be reckoned with, and written again."""
    if isinstance(told, dict):
        return all(_possible(value, key) for key, value in told.items())
    if isinstance(told, list):
        return all(_possible(value) for value in told)
    if not isinstance(told, int):
        return True
    # A monotonic clock's moment may lie before that clock began; it isn't gone on from.
    least = -_MOST if name == "mono_ns" else 0
    return least <= told < (_MOST_BYTE_NS if name == "memory_byte_ns" else _MOST)


def _sound(usage: DeviceUsage) -> bool:
    """Whether all adds up, and can go on."""
    those = usage.containers
    sums: tuple[tuple[int | None, int, list[int]], ...] = (
        (usage.elapsed_ns, usage.unheld_ns + usage.forgotten_held_ns, [c.held_ns for c in those]),
        (
            usage.busy_ns,
            (usage.busy_unattributed_ns or 0) + usage.forgotten_busy_ns,
            [c.busy_ns or 0 for c in those],
        ),
        (
            usage.energy_mj,
            (usage.energy_unattributed_mj or 0) + usage.forgotten_energy_mj,
            [c.energy_mj or 0 for c in those],
        ),
    )
    return (
        all(whole is None or whole == rest + sum(each) for whole, rest, each in sums)
        and len({one.subject for one in those}) == len(those)
        and all(one.holding is None or one.holding.device == usage.device for one in those)
    )


def rebased(devices: Iterable[DeviceUsage], now: Instant) -> TotalsRestored:
    """Return accounts with moments of this machine's monotonic clock, which may have begun anew.

    The monotonic part of each is that of now, less what the wall clock says has passed; where that
    was set back meanwhile, it is that of now.
    """
    return TotalsRestored(tuple([_rebase(device, now) for device in devices]))


def _rebase(value: Any, now: Instant) -> Any:
    if isinstance(value, Instant):
        passed_ns = max(now.wall_ns - value.wall_ns, 0)
        return Instant(now.mono_ns - passed_ns, value.wall_ns)
    if isinstance(value, tuple):
        return _rebased_all(value, now)
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None or type(value).__name__ not in _HAVE_MOMENTS:
        return value
    return type(value)(*_rebased_all([getattr(value, name) for name in fields], now))


_HAVE_MOMENTS: Final = frozenset({"DeviceUsage", "ContainerUsage", "Holding"})


def _rebased_all(values: Sequence[Any], now: Instant) -> tuple[Any, ...]:
    return tuple([_rebase(value, now) for value in values])
