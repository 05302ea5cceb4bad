"""Conversion of usage accounts to and from JSON, so that they continue after a restart."""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from pipeline.model import NS, ContainerUsage, DeviceUsage, Holding, Instant, TotalsRestored

_MAX_TOTAL: Final = 1 << 62
"""Upper limit of all totals: 2**62 ns are 146 years."""

_MAX_BYTE_NS: Final = 1 << 112
"""Upper limit of memory integrated over time: a petabyte for 146 years."""


def dump(usage: DeviceUsage) -> str:
    """Return an account as ASCII JSON, because names may contain bytes that are not UTF-8."""
    return json.dumps(msgspec.to_builtins(usage), separators=(",", ":"))


def load(device: str, text: str) -> DeviceUsage:
    """Return the account of a device from JSON.

    Raises:
        ValueError: the text is not an account of this device, or its parts do not sum to its
            totals.
    """
    try:
        document = json.loads(text)
        usage = msgspec.convert(document, DeviceUsage)
        possible = _is_in_range(document)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if usage.device != device or not possible or not _is_consistent(usage):
        raise ValueError("the parts of the account do not sum to its totals")
    return usage


def _is_in_range(item: Any, name: str = "") -> bool:
    """Whether each number is within the limits that podgpu can add up and write again."""
    if isinstance(item, dict):
        return all(_is_in_range(value, key) for key, value in item.items())
    if isinstance(item, list):
        return all(_is_in_range(value) for value in item)
    if not isinstance(item, int):
        return True
        # Monotonic and wall clock times may be before the clock's zero.
    lowest = -_MAX_TOTAL if name in {"mono_ns", "wall_ns"} else 0
    return lowest <= item < (_MAX_BYTE_NS if name == "memory_byte_ns" else _MAX_TOTAL)


def _is_consistent(usage: DeviceUsage) -> bool:
    """Whether all parts sum to their totals, names are unique, and holdings are of this device."""
    containers = usage.containers
    totals = (
        (usage.elapsed_ns, usage.unheld_ns + usage.forgotten_held_ns, "held_ns"),
        (usage.busy_ns, (usage.busy_unattributed_ns or 0) + usage.forgotten_busy_ns, "busy_ns"),
        (
            usage.energy_mj,
            (usage.energy_unattributed_mj or 0) + usage.forgotten_energy_mj,
            "energy_mj",
        ),
    )
    return (
        all(
            total is None or total == rest + sum(getattr(one, name) or 0 for one in containers)
            for total, rest, name in totals
        )
        and usage.unknown_ns <= usage.unheld_ns
        and len({one.subject for one in containers}) == len(containers)
        and all(one.holding is None or one.holding.device == usage.device for one in containers)
    )


def to_current_clock(
    devices: Iterable[DeviceUsage],
    now: Instant,
    boots: Mapping[str, str] = MappingProxyType({}),
    boot: str = "",
    started: Instant | None = None,
) -> TotalsRestored:
    """Return accounts with their moments converted to the current monotonic clock.

    All moments of an account are from one monotonic clock and are shifted by the same time, so that
    lengths do not change. If the account was written in the current boot, this clock continues and
    nothing is shifted. In another boot, the wall clock determines the age of the last sample. If
    the wall clock was set back, the age is large enough that no moment is after now.

    A moment keeps its wall time unless the wall clock was set in between. Then it gets the wall
    time that fits its age.

    Args:
        devices: the accounts.
        now: the current time.
        boots: the boot id with which each account was written, by device; empty if unknown.
        boot: the current boot id; empty if unknown.
        started: a moment before all accounts of this run; default: `now`. The last sample of an
            account of another boot is before it.
    """
    converted: list[DeviceUsage] = []
    for device in devices:
        written = boots.get(device.device, "")
        if boot and written == boot and device.at.mono_ns <= now.mono_ns:
            shift_ns = 0
        else:
            # If a boot id is unknown, a podgpu that ran after `started` may have written it.
            base = started if started is not None and boot and written else now
            # Moments after the last sample must not be in the future either.
            since_ns = max(_moments(device)) - device.at.mono_ns
            passed_ns = max(base.wall_ns - device.at.wall_ns, since_ns)
            shift_ns = base.mono_ns - passed_ns - device.at.mono_ns
        converted.append(_shifted(device, shift_ns, now))
    return TotalsRestored(tuple(converted))


def _moments(device: DeviceUsage) -> Iterator[int]:
    """Yield all moments of an account on the monotonic clock."""
    yield from (device.start.mono_ns, device.at.mono_ns)
    for one in device.containers:
        holdings = one.closing if one.holding is None else (*one.closing, one.holding)
        yield one.start.mono_ns
        yield from [each.start.mono_ns for each in holdings]
        yield from [end.mono_ns for end in (one.ended, *[e.end for e in holdings]) if end]


_STEP_NS: Final = NS // 2
"""Nanoseconds by which a wall time may differ from the expected one. A larger difference means that
the wall clock was set in between."""


def _shifted(value: Any, shift_ns: int, now: Instant) -> Any:
    if isinstance(value, Instant):
        moved = Instant(value.mono_ns + shift_ns, value.wall_ns)
        fits = now.wall_of(moved)
        return moved if abs(fits - value.wall_ns) <= _STEP_NS else Instant(moved.mono_ns, fits)
    if isinstance(value, tuple):
        return tuple([_shifted(one, shift_ns, now) for one in value])
    if not isinstance(value, DeviceUsage | ContainerUsage | Holding):
        return value
    values = [getattr(value, name) for name in value.__dataclass_fields__]
    return type(value)(*[_shifted(one, shift_ns, now) for one in values])
