"""Render the usage of the last 24 hours, of pods and devices, and of the last four weeks."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from pipeline.ledger.queries import FIRST_FIGURES
from pipeline.status_page.display_text import (
    UNKNOWN,
    amount,
    busy_hours,
    device_name,
    gpu_name,
    hours,
    kilowatt_hours,
    owner_name,
    short_uuid,
    span,
    word_for_owners,
)
from pipeline.status_page.html.elements import cell, row, shown, table, text
from pipeline.status_page.html.part_bars import (
    bar_graph,
    legend,
    part_bar,
    parts_of_device,
    parts_of_period,
    total,
)
from pipeline.status_page.last_day_usage import MOST_DAYS
from pipeline.status_page.status_document import GpuStatus
from pipeline.status_page.usage_format import (
    AmountsStatus,
    DayStatus,
    DeviceAmountsStatus,
    PeriodStatus,
    PodAmountsStatus,
    UsageStatus,
)

_HOURS: Final = 25
"""Number of bars of the last 24 hours: the first and the last hour are partly in them."""

_WEEK: Final = timedelta(days=7)

_OF_INSTANCES: Final = "see its instances"
"""Note at a GPU with MIG instances."""

NEVER_IDLE: Final = "none"
"""Idle time of a container that was busy for longer than its share of the time."""

_MEANING: Final = (
    '<p class="soft">Held time is busy or idle. Each bar is an hour of all devices together; where '
    "it is lower or missing, there are no usage data.</p>\n"
)

_Columns: TypeAlias = Mapping[str, Callable[[AmountsStatus], str]]
"""Function that returns the HTML of a cell, by title of its column."""


def used(status: UsageStatus | None, gpus: Sequence[GpuStatus]) -> str:
    """Return the section with the usage of the last 24 hours; empty without a ledger.

    Args:
        status: usage from the ledger; None without a ledger.
        gpus: current GPUs, for the names of devices.
    """
    if status is None:
        return ""
    error = ""
    if status.error is not None:
        error = (
            f'<p class="warn">The ledger {text(status.sink)} cannot be read now: '
            f"{text(status.error)}</p>\n"
        )
    day = "" if status.day is None else _day(status, status.day, gpus)
    if not day and not error:
        state = (
            "is being read"
            if status.age_seconds is None
            else f"has no usage data for this time: {FIRST_FIGURES}"
        )
        day = f"<p>The ledger {text(status.sink)} {state}.</p>\n"
    return f'<h2 id="day">Last 24 hours{_origin(status)}</h2>\n{error}{day}'


def _origin(status: UsageStatus) -> str:
    """Return the end of the heading of each table, so that none is taken for measured."""
    return " (sample data)" if status.sample_data else ""


def _day(status: UsageStatus, day: DayStatus, gpus: Sequence[GpuStatus]) -> str:
    age = status.age_seconds
    ago = "" if age is None else f", as of {span(age)} ago"
    owner = word_for_owners(each.uid for each in day.pods)
    names = Counter(_name(each) for each in day.pods)
    rows: list[tuple[str, AmountsStatus, _Columns]] = [
        (f"<b>{text(_unique_name(each, names))}</b>", each, _POD) for each in day.pods
    ]
    if day.others is not None:
        more = f"{amount(day.pods_left_out)} other {owner}{'' if day.pods_left_out == 1 else 's'}"
        rows.append((more, day.others, _POD))
    rows += [("unattributed", day.unattributed, _UNATTRIBUTED), ("<b>total</b>", day.total, _POD)]
    body = "".join(_row(name + _mark(usage), usage, columns) for name, usage, columns in rows)
    return (
        f'<p class="soft"><time datetime="{day.since.isoformat()}">{day.since:%Y-%m-%d %H:%M}'
        f'</time> to <time datetime="{day.until.isoformat()}">{day.until:%Y-%m-%d %H:%M} UTC'
        f"</time>{ago}. {_accounted(day)}</p>\n"
        f'<div class="columns"><div>{legend(parts_of_device(day.total))}'
        + bar_graph(status.hours, timedelta(hours=1), _HOURS, "Busy, idle and free, by hour")
        + (_MEANING if status.hours else "")
        + table("day", "day", (owner.capitalize(), *_POD), body)
        + f"</div><div>{_devices(day, gpus, _origin(status))}</div></div>\n"
        + _notes(day)
        + _weeks(status.days, _origin(status))
    )


def _weeks(days: Sequence[PeriodStatus], origin: str) -> str:
    """Return the bars of the last four weeks, and a table; empty before the second day."""
    if len(days) < 2:
        return ""
    first, last = days[0].since, days[-1].since
    weeks: dict[int, list[PeriodStatus]] = {}
    for each in days:
        weeks.setdefault((last - each.since) // _WEEK, []).append(each)
    rows = "".join(
        _week(f"{last - ago * _WEEK - timedelta(days=6):%Y-%m-%d} to {last - ago * _WEEK:%m-%d}", e)
        for ago, e in sorted(weeks.items())
    )
    return (
        f'<h3 id="weeks">Last {MOST_DAYS} days{origin}</h3>\n'
        f'<p class="soft">Usage data since {first:%Y-%m-%d}; days are UTC.</p>\n'
        + legend(total(map(parts_of_period, days)))
        + bar_graph(days, timedelta(days=1), MOST_DAYS, "Busy, idle and free, by day")
        + table("weeks", "weeks", ("Seven days", *_WEEK_COLUMNS), rows)
    )


_WEEK_COLUMNS: Final = ("Held", "Busy", "Idle", "Free", "Unknown", "Energy")


def _week(name: str, days: Sequence[PeriodStatus]) -> str:
    parts = total(map(parts_of_period, days))
    energy = [each.energy_joules for each in days if each.energy_joules is not None]
    figures = (parts.busy + parts.idle, parts.busy, parts.idle, parts.free, parts.unknown)
    cells = [hours(each) for each in figures]
    cells.append(shown(sum(energy) if energy else None, kilowatt_hours))
    return row(
        f"{name}{part_bar(parts)}",
        "".join(
            cell(content, "num", title) for title, content in zip(_WEEK_COLUMNS, cells, strict=True)
        ),
    )


def _devices(day: DayStatus, gpus: Sequence[GpuStatus], origin: str) -> str:
    if not day.devices:
        return ""
    names: dict[str, tuple[str, str]] = {}
    for gpu in gpus:
        if gpu.index is not None:
            note = _OF_INSTANCES if gpu.instances else short_uuid(gpu.uuid)
            names[gpu.uuid] = gpu_name(gpu), note
        for each in gpu.instances:
            names[each.uuid] = device_name(gpu, each), ""
    rows = "".join(_device(one, *names.get(one.uuid, ("", ""))) for one in day.devices)
    more = day.devices_left_out
    return (
        f'<h3 id="cards">By device{origin}</h3>\n'
        + table("cards", "cards", ("Device", *_DEVICE), rows)
        + (f"<p>{amount(more)} more devices are not shown.</p>\n" if more else "")
    )


def _device(usage: DeviceAmountsStatus, name: str, note: str) -> str:
    """Return the row of a device.

    Args:
        usage: usage of the device.
        name: name of the device in the table of GPUs; empty if the device is not in that table.
        note: text below the name; empty for an instance, whose name contains its profile.
    """
    model = f" {text(usage.name)}" if usage.name and (note or not name) else ""
    small = f'<small title="{text(usage.uuid)}">{text(note)}</small>' if note else ""
    bar = part_bar(parts_of_device(usage))
    head = f"<b>{text(name or usage.uuid)}</b>{model}{_mark(usage)}{small}{bar}"
    return _row(head, usage, _PARENT if note == _OF_INSTANCES else _DEVICE)


def _accounted(day: DayStatus) -> str:
    whole = hours(day.accounted_seconds + day.gap_seconds)
    if not day.gap_seconds:
        return f"All {whole} of all devices have usage data."
    return f"Of {whole} of all devices, {hours(day.gap_seconds)} have no usage data."


def _notes(day: DayStatus) -> str:
    others = () if day.others is None else (day.others,)
    rows = (*day.pods, day.unattributed, day.total, *others, *day.devices)
    notes = ""
    if any(each.incomplete for each in rows):
        notes += '<p class="soft">* incomplete: a part of this value is unknown.</p>\n'
    if any(None in {each.busy_seconds, each.energy_joules} for each in rows):
        notes += '<p class="soft">&ndash; unknown: no source reported it in this time.</p>\n'
    if any((each.idle_seconds or 0) < 0 for each in (*day.pods, *others, *day.devices)):
        notes += (
            f'<p class="soft">{NEVER_IDLE}: busy for longer than the held part of the time, for '
            "example because other holders of the device were idle.</p>\n"
        )
    return notes


def _name(pod: PodAmountsStatus) -> str:
    return owner_name(None if pod.pod is None else pod.namespace, pod.pod, pod.uid or UNKNOWN)


def _unique_name(pod: PodAmountsStatus, names: Mapping[str, int]) -> str:
    """Return the name of a pod, with its UID if the name is not unique."""
    name = _name(pod)
    return name if names[name] < 2 else f"{name} (uid {pod.uid or UNKNOWN})"


def _row(head: str, usage: AmountsStatus, columns: _Columns) -> str:
    return row(head, "".join(_cell(show(usage), title) for title, show in columns.items()))


def _cell(content: str, title: str) -> str:
    """Return the cell of a figure; one that is empty is hidden in a narrow window."""
    return cell(content, "num" if content else "num no", title)


def _mark(usage: AmountsStatus) -> str:
    return " *" if usage.incomplete else ""


def _idle(seconds: float) -> str:
    return NEVER_IDLE if seconds < 0 else hours(seconds)


_BUSY: Final[_Columns] = {
    "Held": lambda usage: shown(usage.held_seconds, hours),
    "Busy": lambda usage: shown(busy_hours(usage), str),
    "Idle": lambda usage: shown(usage.idle_seconds, _idle),
}
_ENERGY: Final[_Columns] = {"Energy": lambda usage: shown(usage.energy_joules, kilowatt_hours)}
_POD: Final[_Columns] = {**_BUSY, **_ENERGY}
_UNATTRIBUTED: Final[_Columns] = {**_POD, "Held": lambda _: "", "Idle": lambda _: ""}
"""Unattributed usage is of processes of no known container, which hold nothing."""

_DEVICE: Final[_Columns] = {
    **_BUSY,
    "Free": lambda usage: shown(usage.free_seconds, hours),
    "Unknown": lambda usage: shown(usage.unknown_seconds, hours),
    **_ENERGY,
}

_PARENT: Final[_Columns] = {
    **_DEVICE,
    "Busy": lambda usage: "" if usage.busy_seconds is None else hours(usage.busy_seconds),
    "Idle": lambda usage: "" if usage.idle_seconds is None else _idle(usage.idle_seconds),
}
"""Of a GPU with instances, busy and idle time are known only of the instances."""
