"""What stands in which column of the table of GPUs. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from pipeline.status_page.display_text import held, holder_name, part, share_text, span, unheld_text
from pipeline.status_page.status_document import GpuStatus, HolderStatus, InstanceStatus
from podgpu.cli.terminal_text import broken, fit, middle, terminal_safe
from podgpu.cli.terminal_text import width as wide
from podgpu.cli.top.device_rows import Device, Row

MOST: Final = 3
"""Holders of one device that have a line of their own, unless all are asked for."""

_NARROW: Final = 100
"""Width of the terminal below which bars are short: the names of pods need the room."""

_UNKNOWN: Final = "-"

_PARTS: Final = 3
"""A container that takes more than one of so many parts of the room gives way to its pod."""

_LONGEST: Final = 99 * 86_400
"""Seconds of which more is said to be at least as much: the column has four places."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: its heading.
        width: how many places it takes; 0 for what is left.
        least: width of the terminal from which on it is shown.
        right: figures stand at the right.
    """

    title: str
    width: int
    least: int = 0
    right: bool = False


_GIB: Final = 1 << 30

_LEAST: Final = 8
"""Width of the column that gets what is left; a terminal that lacks it shows a part."""


def columns(width: int) -> tuple[Column, ...]:
    """Return all columns; for those with `least` above it a terminal of this width has no room."""
    return (
        Column("GPU", 15),
        Column("USE", bar_of(width) + 7),
        Column("MEMORY GIB", 11, least=50, right=True),
        Column("POWER W", 7, least=72, right=True),
        Column("TEMP", 4, least=64, right=True),
        Column("HELD BY", 0),
        Column("FOR", 4, right=True),
        Column("PART", 10, least=110),
        Column("SOURCE", 22, least=130),
    )


def bar_of(width: int) -> int:
    """Return how long a bar is in a terminal of this width."""
    return 5 if width < _NARROW else 10


def heading(width: int) -> str:
    """Return the line above the table."""
    return lined([column.title for column in columns(width)], width)


def lined(cells: Sequence[str], width: int) -> str:
    """Return a line of the table that takes exactly `width` places.

    Args:
        cells: one for each column, those that have no room among them.
        width: of the terminal.
    """
    shown = [
        (column, cell)
        for column, cell in zip(columns(width), cells, strict=True)
        if width >= column.least
    ]
    left = room(width)
    parts = [fit(cell, column.width or left, right=column.right) for column, cell in shown]
    return fit(" ".join(parts), width)


def room(width: int) -> int:
    """Return the width of the column that gets what is left, in a terminal of this width."""
    shown = [column.width for column in columns(width) if width >= column.least]
    return max(width - sum(shown) - len(shown) + 1, _LEAST)


def needed(holders: Iterable[HolderStatus], width: int) -> int:
    """Return the width from `width` on in which each holder's name is whole, on one line."""
    longest = max((wide(terminal_safe(holder_name(each))) for each in holders), default=0)
    return width + max(longest - room(width), 0)


def cells(row: Row, now: datetime, width: int, *, whole: bool) -> Iterator[list[str]]:
    """Yield what stands in the columns, line by line: one for each holder that has its own.

    Args:
        row: a device.
        now: the document's time.
        width: of the terminal.
        whole: every holder has a line of its own, and more where its name takes them.
    """
    device, holders = row.device, row.device.holders or ()
    shown = holders if whole or len(holders) <= MOST else holders[: MOST - 1]
    more = len(holders) - len(shown) + device.holders_left_out
    first = [_name(device), *_figures(device, bar_of(width))]
    behind = [line for holder in shown for line in _holder(holder, now, room(width), whole=whole)]
    if more:
        behind.append([f"and {more} more", "", "", ""])
    if isinstance(device, GpuStatus) and device.instances:
        behind.insert(0, [held(device) if row.folded or not behind else "instances:", "", "", ""])
    if device.conflicts:
        behind.append([f"! {device.conflicts} in conflict", "", "", ""])
    if not behind:
        behind.append([unheld_text(device), "", "", ""])
    for at, cell in enumerate(behind):
        yield [*(first if at == 0 else [""] * len(first)), *cell]


def _name(device: Device) -> str:
    if isinstance(device, InstanceStatus):
        where = f"{device.gpu_instance_id}"
        if device.compute_instance_id is not None:
            where += f"/{device.compute_instance_id}"
        return f"  {device.profile or 'MIG'} {where}"
    name = device.uuid if device.index is None else str(device.index)
    return name if device.state == "up" else f"{name} {device.state.upper()}"


def _figures(device: Device, bar: int) -> list[str]:
    power = temperature = ""
    if isinstance(device, GpuStatus):
        power, limit = _whole(device.power_watts), device.power_limit_watts
        power += f"/{limit:.0f}" if limit is not None else ""
        temperature = _whole(device.temperature_celsius)
    return [_use(device.utilization_percent, bar), _memory(device), power, temperature]


def _use(percent: float | None, bar: int) -> str:
    filled = part(percent, 100)
    if percent is None or filled is None:
        return f"[{' ' * bar}]   {_UNKNOWN}"
    return f"[{'|' * round(filled * bar):{bar}}]{percent:4.0f}%"


def _memory(device: Device) -> str:
    used, total = (
        _UNKNOWN if count is None else f"{count / _GIB:.1f}"
        for count in (device.memory_used_bytes, device.memory_total_bytes)
    )
    return _UNKNOWN if used == total == _UNKNOWN else f"{used}/{total}"


def _whole(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0f}"


def _holder(holder: HolderStatus, now: datetime, room: int, *, whole: bool) -> list[list[str]]:
    seconds = (now - holder.since).total_seconds()
    if not holder.since_known:
        seconds = min(seconds, _LONGEST)
    since = span(seconds).replace(" ", "").replace("min", "m")
    since += "" if holder.since_known else "+"
    name, *more = broken(holder_name(holder), room) if whole else [_short(holder, room)]
    source = f"{holder.source}: {holder.evidence}"
    return [[name, since, share_text(holder), source], *([part, "", "", ""] for part in more)]


def _short(holder: HolderStatus, room: int) -> str:
    """Return a holder's name so that others of the same beginning differ from it.

    The container has a part of the room at most: those of many pods have the same name.
    """
    whole, pod = (
        terminal_safe(holder_name(each)) for each in (holder, replace(holder, container=None))
    )
    container = whole.removeprefix(pod)
    if wide(whole) <= room or wide(pod) < room:
        return whole
    if wide(pod) == room or wide(container) * _PARTS > room:
        return middle(pod, room)
    return middle(pod, room - wide(container)) + container
