"""Accounts as the ledger keeps them to go on from: text and back, without loss."""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from pipeline.model import NS, DeviceUsage, Instant, TotalsRestored

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
        possible = _is_in_range(told)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if usage.device != device or not possible or not _is_consistent(usage):
        raise ValueError("the parts of the account don't come to the whole")
    return usage


def _is_in_range(item: Any, name: str = "") -> bool:
    """Whether each number is one that can be reckoned with, and written again."""
    if isinstance(item, dict):
        return all(_is_in_range(value, key) for key, value in item.items())
    if isinstance(item, list):
        return all(_is_in_range(value) for value in item)
    if not isinstance(item, int):
        return True
    # A moment may lie before its clock began.
    least = -_MOST if name in {"mono_ns", "wall_ns"} else 0
    return least <= item < (_MOST_BYTE_NS if name == "memory_byte_ns" else _MOST)


def _is_consistent(usage: DeviceUsage) -> bool:
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
        and usage.unknown_ns <= usage.unheld_ns
        and len({one.subject for one in those}) == len(those)
        and all(one.holding is None or one.holding.device == usage.device for one in those)
    )


def to_current_clock(
    devices: Iterable[DeviceUsage],
    now: Instant,
    boots: Mapping[str, str] = MappingProxyType({}),
    boot: str = "",
    started: Instant | None = None,
) -> TotalsRestored:
    """Return accounts with moments of the present monotonic clock.

    All moments of an account are of one monotonic clock, and are moved by the same time, so that
    each length stays as it was. In the boot in which the account was written that clock goes on,
    and nothing is moved. In another boot the last look is put as long ago as the wall clock says;
    where that was set back meanwhile, so that nothing of the account lies after now.

    A moment keeps its wall time unless the wall clock was set since: then it gets the one that fits
    its age.

    Args:
        devices: the accounts.
        now: the present.
        boots: by device, the boot in which its account was written; empty where that isn't known.
        boot: the present one; likewise.
        started: a moment before any account of this run; `now`, if none is given. An account of
            another boot was last looked at before that.
    """
    found: list[DeviceUsage] = []
    for device in devices:
        written = boots.get(device.device, "")
        if boot and written == boot and device.at.mono_ns <= now.mono_ns:
            shift_ns = 0
        else:
            # Another podgpu, which still ran then, may have written it in a boot nobody knows.
            base = started if started is not None and boot and written else now
            # What was heard after the last look lies after it, in this boot as in that.
            since_ns = max(_moments(device)) - device.at.mono_ns
            passed_ns = max(base.wall_ns - device.at.wall_ns, since_ns)
            shift_ns = base.mono_ns - passed_ns - device.at.mono_ns
        found.append(_shifted(device, shift_ns, now))
    return TotalsRestored(tuple(found))


def _moments(device: DeviceUsage) -> Iterator[int]:
    """Yield all moments of an account, by the monotonic clock."""
    yield from (device.start.mono_ns, device.at.mono_ns)
    for one in device.containers:
        holdings = one.closing if one.holding is None else (*one.closing, one.holding)
        yield one.start.mono_ns
        yield from [each.start.mono_ns for each in holdings]
        yield from [end.mono_ns for end in (one.ended, *[e.end for e in holdings]) if end]


_STEP_NS: Final = NS // 2
"""A wall time that is off by more than this is of a wall clock that was set since."""


def _shifted(value: Any, shift_ns: int, now: Instant) -> Any:
    if isinstance(value, Instant):
        moved = Instant(value.mono_ns + shift_ns, value.wall_ns)
        fits = now.wall_of(moved)
        return moved if abs(fits - value.wall_ns) <= _STEP_NS else Instant(moved.mono_ns, fits)
    if isinstance(value, tuple):
        return tuple([_shifted(one, shift_ns, now) for one in value])
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None or type(value).__name__ not in _HAVE_MOMENTS:
        return value
    return type(value)(*[_shifted(getattr(value, name), shift_ns, now) for name in fields])


_HAVE_MOMENTS: Final = frozenset({"DeviceUsage", "ContainerUsage", "Holding"})
