"""The table of GPUs: its columns, the filtered and sorted devices, and their cells. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Final, TypeAlias

from msgspec.structs import replace

from pipeline.status_page.display_text import (
    gpu_name,
    held,
    holder_name,
    part,
    placement_text,
    share_text,
    span,
    unheld_text,
)
from pipeline.status_page.status_document import (
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    StatusDocument,
)
from podgpu.cli.terminal_text import broken, fit, middle, terminal_safe
from podgpu.cli.terminal_text import width as wide
from podgpu.cli.top.ui_state import Sort, State

Device: TypeAlias = GpuStatus | InstanceStatus

_LAST: Final = "\U0010ffff"

_GPU: Final = re.compile("gpu[0-9]+")
"""Matches a word of the filter that names one GPU: the word `gpu1` does not select GPU 12."""


def rows(status: StatusDocument, state: State) -> list[Device]:
    """Return the devices that the filter selects, in sort order; instances follow their GPU."""
    words = state.filter.lower().split()
    found: list[tuple[GpuStatus, list[InstanceStatus]]] = []
    for gpu in status.gpus or ():
        left = _left(gpu, words)
        if left is None:
            continue
        whole = _matches(left, gpu, _word(gpu), gpu.name or "")
        below = [
            each
            for each in gpu.instances
            if whole or _matches(left, each, _word(gpu), each.profile or "", placement_text(each))
        ]
        if whole or below:
            found.append((gpu, below))
    if state.sort is not Sort.INDEX:
        sort = state.sort
        for _, below in found:
            below.sort(key=lambda each: _key(each, sort))
        found.sort(key=lambda one: min([_key(one[0], sort), *(_key(x, sort) for x in one[1][:1])]))
    devices: list[Device] = []
    for gpu, below in found:
        devices += [gpu, *([] if state.folded else below)]
    return devices


def _key(device: Device, sort: Sort) -> tuple[bool, float, str]:
    """Return the sort key of a device: high values first, or names of holders in order.

    Devices without the value come last.
    """
    value: float | None
    match sort:
        case Sort.UTILIZATION:
            value = device.utilization_percent
        case Sort.MEMORY:
            value = device.memory_used_bytes
        case Sort.POWER:
            value = device.power_watts if isinstance(device, GpuStatus) else None
        case Sort.POD:
            names = [holder_name(holder) for holder in device.holders or ()]
            return not names, 0.0, min(names, default=_LAST)
        case Sort.INDEX:
            value = None
    return value is None, -(value or 0.0), ""


def _left(gpu: GpuStatus, words: Sequence[str]) -> list[str] | None:
    """Return the words that name no GPU; None if a word names another GPU than this one."""
    named = {word for word in words if _GPU.fullmatch(word)}
    if named - {_word(gpu).lower()}:
        return None
    return [word for word in words if word not in named]


def _word(gpu: GpuStatus) -> str:
    """Return a GPU's name without blanks, such as `gpu3`, because filter words have no blanks."""
    return gpu_name(gpu).replace(" ", "")


def _matches(words: Sequence[str], device: Device, *names: str) -> bool:
    """Return whether each word occurs in the names, UUID, state or holders of a device."""
    holders = device.holders or ()
    named = [f"{holder_name(each)} {each.source} {each.evidence}" for each in holders]
    free = [] if holders or device.holders is None else ["free"]
    searched = "\n".join((*names, device.uuid, device.state, *free, *named)).lower()
    return all(word in searched for word in words)


MOST: Final = 3
"""Maximum number of lines for the holders of a device, unless the user wants to see all."""

_NARROW: Final = 100
"""Below this width of the terminal, bars are short, so that names of pods have more room."""

_UNKNOWN: Final = "-"

_CONTAINER_FRACTION: Final = 3
"""A container name is omitted if it needs more than this part (1/3) of the room for the name."""

_MAX_SECONDS: Final = 99 * 86_400
"""Maximum number of seconds shown for a lower bound: the column has four characters."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    Attributes:
        title: the heading.
        width: width in characters; 0 for the one column that gets the remaining width.
        least: minimum width of a terminal that shows the column.
        right: whether cells are aligned to the right.
    """

    title: str
    width: int
    least: int = 0
    right: bool = False


_GIB: Final = 1 << 30

_MIN_NAME_WIDTH: Final = 8
"""Minimum width of the column that gets the remaining width. A narrower terminal cuts lines."""


@cache
def columns(width: int) -> tuple[Column, ...]:
    """Return all columns, also those whose `least` exceeds the width of the terminal."""
    return (
        Column("GPU", 15),
        Column("USE", bar_of(width) + 7),
        Column("MEMORY GIB", 11, least=50, right=True),
        Column("POWER W", 7, least=72, right=True),
        Column("TEMP", 4, least=64, right=True),
        Column("HELD BY", 0),
        Column("FOR", 4, right=True),
        Column("SHARE", 10, least=110),
        Column("SOURCE", 22, least=130),
    )


def bar_of(width: int) -> int:
    """Return the length of a bar for a terminal of the given width."""
    return 5 if width < _NARROW else 10


def heading(width: int) -> str:
    """Return the line with the headings of the columns."""
    return lined([column.title for column in columns(width)], width)


def lined(cells: Sequence[str], width: int) -> str:
    """Return a line of the table that is exactly `width` characters wide.

    Args:
        cells: a cell for each column, also for those that are not shown.
        width: width of the terminal.
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
    """Return the width of the column that gets the remaining width of the terminal."""
    shown = [column.width for column in columns(width) if width >= column.least]
    return max(width - sum(shown) - len(shown) + 1, _MIN_NAME_WIDTH)


def needed(holders: Iterable[HolderStatus], width: int) -> int:
    """Return the width of a terminal in which each holder's name fits on one line."""
    longest = max((wide(terminal_safe(holder_name(each))) for each in holders), default=0)
    return width + max(longest - room(width), 0)


def cells(device: Device, state: State, now: datetime, width: int) -> Iterator[list[str]]:
    """Yield the cells of each line of a device: for each shown holder, one line or more.

    Args:
        device: the device.
        state: what the user has selected.
        now: time of the status document.
        width: width of the terminal.
    """
    holders, whole = device.holders or (), state.whole
    shown = holders if whole or len(holders) <= MOST else holders[: MOST - 1]
    more = len(holders) - len(shown) + device.holders_left_out
    first = [_name(device), *_figures(device, bar_of(width))]
    lines = [line for holder in shown for line in _holder(holder, now, room(width), whole=whole)]
    if more:
        lines.append([f"and {more} more", "", "", ""])
    if isinstance(device, GpuStatus) and device.instances:
        lines.insert(0, [held(device) if state.folded or not lines else "instances:", "", "", ""])
    if device.conflicts:
        lines.append([f"! {device.conflicts} in conflict", "", "", ""])
    if not lines:
        lines.append([unheld_text(device), "", "", ""])
    for at, cell in enumerate(lines):
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
        seconds = min(seconds, _MAX_SECONDS)
    since = span(seconds).replace(" ", "").replace("min", "m")
    since += "" if holder.since_known else "+"
    name, *more = broken(holder_name(holder), room) if whole else [_short(holder, room)]
    source = f"{holder.source}: {holder.evidence}"
    return [[name, since, share_text(holder), source], *([part, "", "", ""] for part in more)]


def _short(holder: HolderStatus, room: int) -> str:
    """Shorten a holder's name to fit, by cutting it in the middle or omitting the container.

    Names of pods with the same start stay different. The container gets only a part of the room,
    because it has the same name in many pods.
    """
    whole, pod = (
        terminal_safe(holder_name(each)) for each in (holder, replace(holder, container=None))
    )
    container = whole.removeprefix(pod)
    if wide(whole) <= room or wide(pod) < room:
        return whole
    if wide(pod) == room or wide(container) * _CONTAINER_FRACTION > room:
        return middle(pod, room)
    return middle(pod, room - wide(container)) + container
