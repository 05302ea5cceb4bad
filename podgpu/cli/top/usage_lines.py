"""Lines about the last 24 hours and four weeks, from a ledger. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from pipeline.ledger.queries import FIRST_FIGURES
from pipeline.status_page.display_text import (
    UNKNOWN,
    gpu_name,
    hours,
    kilowatt_hours,
    owner_name,
    placement_text,
    short_uuid,
    span,
    whole_percent,
    word_for_owners,
)
from pipeline.status_page.html.part_bars import Parts, parts_of_device, parts_of_period, total
from pipeline.status_page.html.usage_tables import NEVER_IDLE
from pipeline.status_page.last_day_usage import MOST_DAYS
from pipeline.status_page.status_document import GpuStatus, StatusDocument
from pipeline.status_page.usage_format import (
    AmountsStatus,
    DayStatus,
    PeriodStatus,
    PodAmountsStatus,
    UsageStatus,
)
from podgpu.cli.terminal_text import MARK, Column, laid_out, wrapped
from podgpu.cli.top.styled_text import Line, Span, Style, fitted, styled, width_of

_HOURS: Final = 25
"""Number of bars of the last 24 hours: the first and the last hour are partly in them."""

_ROWS: Final = 8
"""Height of the bars."""

_MOST_WIDE: Final = 5
"""Maximum width of a bar."""

_UNATTRIBUTED: Final = "unattributed"
"""Name of the row with the usage of no known container, which holds nothing."""

_PARTS: Final[Mapping[str, tuple[str, Style]]] = {
    "busy": ("█", Style.USE),
    "idle": ("▒", Style.WARNING),
    "unknown": ("?", Style.SOFT),
    "free": ("·", Style.SOFT),
}
"""Character and style of each part of a bar."""

_ERROR: Final = "±"
"""Title of the column of how wrong busy times may be, because devices were shared."""

_FIGURES: Final = ("Held", "Busy", _ERROR, "Idle", "Energy")


def usage_lines(status: StatusDocument, width: int) -> list[Line]:
    """Return the lines about the usage of the node.

    Args:
        status: the status document.
        width: width of the terminal.
    """
    return [fitted(line, min(width_of(line), width)) for line in _lines(status, width)]


def _lines(status: StatusDocument, width: int) -> Iterator[Line]:
    usage = status.usage
    if usage is None:
        text = (
            "There is no ledger on this node, so podgpu keeps no usage. Add a sink of kind ledger "
            "to the configuration."
        )
        yield from _sentence(text, width)
        return
    if usage.sample_data is not None:
        text = f"This is sample data, made by {usage.sample_data}. It was not measured."
        yield from _sentence(text, width, Style.WARNING)
    if usage.error is not None:
        text = f"The ledger {usage.sink} cannot be read now: {usage.error}"
        yield from _sentence(text, width, Style.WARNING)
    if usage.day is None:
        state = "is being read" if usage.age_seconds is None else f"has no data: {FIRST_FIGURES}"
        yield from _sentence(f"The ledger {usage.sink} {state}.", width)
        return
    yield from _day(usage, usage.day, status.gpus or (), width)
    yield from _weeks(usage.days, width)


def _sentence(text: str, width: int, style: Style = Style.PLAIN) -> Iterator[Line]:
    for part in wrapped(text, max(width, 2)):
        yield styled(part, style)


def _day(
    usage: UsageStatus, day: DayStatus, gpus: Sequence[GpuStatus], width: int
) -> Iterator[Line]:
    ago = "" if usage.age_seconds is None else f", read {span(usage.age_seconds)} ago"
    yield styled("LAST 24 HOURS", Style.STRONG)
    text = f"{day.since:%Y-%m-%d %H:%M} to {day.until:%Y-%m-%d %H:%M} UTC{ago}"
    if day.gap_seconds:
        whole = hours(day.accounted_seconds + day.gap_seconds)
        text += f"; of {whole} of all devices, {hours(day.gap_seconds)} have no usage data"
    yield from _sentence(text, width, Style.SOFT)
    yield from _legend(parts_of_device(day.total))
    yield from _bars(usage.hours, timedelta(hours=1), _HOURS, width)
    yield ()
    owner = word_for_owners(each.uid for each in day.pods)
    rows: list[tuple[str, AmountsStatus]] = [(_pod_name(each), each) for each in day.pods]
    if day.others is not None:
        rows.append((f"{day.pods_left_out} other {owner}s", day.others))
    rows += [(_UNATTRIBUTED, day.unattributed), ("total", day.total)]
    yield from _table(owner.upper(), rows, width, _FIGURES)
    names = _device_names(gpus)
    devices = [(names.get(each.uuid) or short_uuid(each.uuid), each) for each in day.devices]
    if devices:
        yield ()
        yield from _table("DEVICE", devices, width, ("Held", "Busy", "Idle", "Free", "Energy"))
    amounts = [amount for _, amount in (*rows, *devices)]
    if any(each.incomplete for each in amounts):
        yield styled(f"{MARK} incomplete: a part of this value is unknown", Style.SOFT)


def _weeks(days: Sequence[PeriodStatus], width: int) -> Iterator[Line]:
    if len(days) < 2:
        return
    yield ()
    yield styled(f"LAST {MOST_DAYS} DAYS (UTC)", Style.STRONG)
    yield from _legend(total(map(parts_of_period, days)))
    yield from _bars(days, timedelta(days=1), MOST_DAYS, width)


def _legend(parts: Parts) -> Iterator[Line]:
    whole = sum(parts)
    found: list[Span] = []
    for name, seconds in parts._asdict().items():
        character, style = _PARTS[name]
        share = f"{whole_percent(seconds / whole)}%" if whole else "-"
        if share != "0%" or name != "unknown":
            found += [Span(character, style), Span(f" {name} {share}   ")]
    yield tuple(found)


def _bars(
    periods: Sequence[PeriodStatus], length: timedelta, count: int, width: int
) -> Iterator[Line]:
    """Yield bars as high as the time with usage data; the last one is the last of the periods."""
    if not periods:
        return
    last = periods[-1].since
    parts = {round((last - each.since) / length): parts_of_period(each) for each in periods}
    most = max(map(sum, parts.values())) or 1.0
    each = min(width // count, _MOST_WIDE)
    # A terminal that is too narrow shows the latest ones.
    shown = count if each else width
    gap = 1 if each > 1 else 0
    each = max(each, 1)
    for row in reversed(range(_ROWS)):
        found: list[Span] = []
        for ago in reversed(range(shown)):
            character, style = _at(parts.get(ago), (row + 0.5) / _ROWS * most)
            found += [Span(character * (each - gap), style), Span(" " * gap)]
        yield tuple(found)
    first, end = (_when(last - ago * length, length) for ago in (shown - 1, 0))
    whole = shown * each - gap
    yield styled(
        first + end.rjust(whole - len(first)) if whole > len(first + end) else end, Style.SOFT
    )


def _at(parts: Parts | None, height: float) -> tuple[str, Style]:
    """Return what a bar shows at a height, in seconds."""
    for name, seconds in parts._asdict().items() if parts is not None else ():
        if height < seconds:
            return _PARTS[name]
        height -= seconds
    return " ", Style.PLAIN


def _when(since: object, length: timedelta) -> str:
    return f"{since:%m-%d}" if length >= timedelta(days=1) else f"{since:%H:%M}"


def _table(
    title: str, rows: Sequence[tuple[str, AmountsStatus]], width: int, figures: Sequence[str]
) -> Iterator[Line]:
    figures = [
        each
        for each in figures
        if each != _ERROR or any(amounts.busy_error_seconds for _, amounts in rows)
    ]
    columns = [Column(title, name=True, least=8)]
    columns += [
        Column(each, rank=len(_FIGURES) + 1 if each == _ERROR else at + 1 if at > 1 else 0)
        for at, each in enumerate(figures)
    ]
    cells = [
        [
            name,
            *(
                "" if name == _UNATTRIBUTED and each in {"Held", "Idle"} else _figure(amounts, each)
                for each in figures
            ),
        ]
        for name, amounts in rows
    ]
    head, *lines = laid_out(columns, cells, width)
    yield styled(head, Style.HEADING)
    for line in lines:
        yield styled(line)


def _figure(amounts: AmountsStatus, name: str) -> str:
    seconds = {
        "Held": amounts.held_seconds,
        "Busy": amounts.busy_seconds,
        "Idle": amounts.idle_seconds,
        "Free": amounts.free_seconds,
    }
    if name == "Energy":
        joules = amounts.energy_joules
        text = UNKNOWN if joules is None else kilowatt_hours(joules)
    elif name == _ERROR:
        text = hours(amounts.busy_error_seconds) if amounts.busy_error_seconds else ""
    else:
        value = seconds[name]
        never_idle = name == "Idle" and value is not None and value < 0
        text = UNKNOWN if value is None else NEVER_IDLE if never_idle else hours(value)
    return f"{text}{MARK}" if amounts.incomplete and name == "Energy" else text


def _pod_name(pod: PodAmountsStatus) -> str:
    return owner_name(None if pod.pod is None else pod.namespace, pod.pod, pod.uid or UNKNOWN)


def _device_names(gpus: Sequence[GpuStatus]) -> dict[str, str]:
    names: dict[str, str] = {}
    for gpu in gpus:
        names[gpu.uuid] = gpu_name(gpu)
        for each in gpu.instances:
            names[each.uuid] = f"{gpu_name(gpu)} {each.profile or 'MIG'} {placement_text(each)}"
    return names
