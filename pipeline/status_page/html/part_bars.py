"""Bars that show which part of a time devices were busy, idle, free, or unknown."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pipeline.status_page.display_text import hours, whole_percent
from pipeline.status_page.html.elements import text
from pipeline.status_page.usage_format import AmountsStatus, PeriodStatus

_BAR: Final = 10
_GAP: Final = 1
_HEIGHT: Final = 40


class Parts(NamedTuple):
    """Parts of the time with usage data of devices, in seconds; the names are CSS classes too.

    Attributes:
        busy: busy time.
        idle: held time that was not busy.
        unknown: time for which the holders, or the busy part of the held time, are unknown.
        free: time in which the devices were free.
    """

    busy: float
    idle: float
    unknown: float
    free: float


def parts_of_period(period: PeriodStatus) -> Parts:
    """Return the parts of an hour or a day."""
    found = period.busy_seconds, period.idle_seconds, period.unknown_seconds, period.free_seconds
    return Parts(*(max(each, 0.0) for each in found))


def parts_of_device(amounts: AmountsStatus) -> Parts:
    """Return the parts of a device's time, or of all devices together."""
    held, free = amounts.held_seconds, amounts.free_seconds
    whole = max(held + free + amounts.unknown_seconds, 0.0)
    busy = min(max(amounts.busy_seconds or 0.0, 0.0), whole)
    idle = min(max(amounts.idle_seconds or 0.0, 0.0), whole - busy)
    # Busy time of processes on a device that no container held is taken from the free time.
    free = min(max(free, 0.0), whole - busy - idle)
    return Parts(busy, idle, max(whole - busy - idle - free, 0.0), free)


def total(parts: Iterable[Parts]) -> Parts:
    """Return the sum of parts."""
    return Parts(*(sum(each) for each in zip(Parts(0, 0, 0, 0), *parts, strict=True)))


def legend(parts: Parts) -> str:
    """Return the parts as a list with their colours; with their percentage if there is any time."""
    whole = sum(parts)
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 1 1" aria-hidden="true">'
        f'<rect class="{name}" width="1" height="1"/></svg>{name} {hours(seconds)}'
        f"{f' ({_percent(seconds / whole)})' if whole else ''}</li>"
        for name, seconds in parts._asdict().items()
    )
    return f'<ul class="legend">{items}</ul>\n'


def _percent(part: float) -> str:
    return f"{text(whole_percent(part))}&nbsp;%"


def part_bar(parts: Parts) -> str:
    """Return a horizontal bar; empty without any time. Screen readers ignore it."""
    whole = sum(parts)
    if not whole:
        return ""
    rects, x = "", 0.0
    for name, seconds in parts._asdict().items():
        width = seconds / whole * 100
        if width:
            rects += f'<rect class="{name}" x="{x:.1f}" width="{width:.1f}" height="1"/>'
        x += width
    return (
        '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
        f"{rects}</svg>"
    )


def bar_graph(periods: Sequence[PeriodStatus], length: timedelta, count: int, name: str) -> str:
    """Return a bar for each hour or day, as high as its time with usage data.

    Args:
        periods: the periods, the oldest first; those without usage data may be missing.
        length: length of a period.
        count: number of bars. The last one is the last of the periods.
        name: what the bars are, for screen readers.
    """
    if not periods:
        return ""
    last = periods[-1].since
    most = max(sum(parts_of_period(each)) for each in periods) or 1.0
    bars = "".join(
        _bar(each, count - 1 - _steps(each.since, last, length), length, most)
        for each in periods
        if _steps(each.since, last, length) < count
    )
    width = count * _BAR
    first = last - (count - 1) * length
    return (
        f'<svg class="bars" viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{text(name)}">'
        f'<rect class="t" width="{width}" height="{_HEIGHT}"/>{bars}</svg>'
        f'<div class="axis soft"><span>{_when(first, length)}</span>'
        f"<span>{_when(last, length)}</span></div>\n"
    )


def _steps(since: datetime, last: datetime, length: timedelta) -> int:
    return round((last - since) / length)


def _when(since: datetime, length: timedelta) -> str:
    return f"{since:%Y-%m-%d}" if length >= timedelta(days=1) else f"{since:%Y-%m-%d %H:%M} UTC"


def _bar(each: PeriodStatus, place: int, length: timedelta, most: float) -> str:
    parts = parts_of_period(each)
    whole = sum(parts)
    said = ", ".join(
        f"{name} {_percent(seconds / whole)}"
        for name, seconds in parts._asdict().items()
        if seconds
    )
    rects, y = "", float(_HEIGHT)
    for name, seconds in parts._asdict().items():
        height = seconds / most * _HEIGHT
        y -= height
        if height:
            rects += (
                f'<rect class="{name}" x="{place * _BAR + _GAP}" y="{max(y, 0.0):.1f}" '
                f'width="{_BAR - 2 * _GAP}" height="{height:.1f}"/>'
            )
    title = f"{_when(each.since, length)}: {said or 'no usage data'}"
    return f"<g><title>{title}</title>{rects}</g>"
