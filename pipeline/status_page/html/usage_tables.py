"""Render the usage of the last 24 hours: a table of pods and a table of devices."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from pipeline.ledger.queries import FIRST_FIGURES
from pipeline.status_page.display_text import (
    UNKNOWN,
    amount,
    gpu_name,
    hours,
    kilowatt_hours,
    placement_text,
    short_uuid,
    span,
)
from pipeline.status_page.html.elements import cell, row, shown, table, text
from pipeline.status_page.html.graphs import bar_graph
from pipeline.status_page.last_day_usage import MOST_DAYS
from pipeline.status_page.status_document import (
    AmountsStatus,
    DayStatus,
    DeviceAmountsStatus,
    GpuStatus,
    PodAmountsStatus,
    UsageStatus,
)

_HOURS: Final = 25
"""Number of bars of the last 24 hours: the first and the last hour are partly in them."""

_LEGEND: Final = (
    '<p class="soft">Each bar is an hour: the wide part is the allocated time of all devices, the '
    "narrow part in front of it the used time.</p>\n"
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
    return f'<h2 id="day">Last 24 hours</h2>\n{error}{day}'


def _day(status: UsageStatus, day: DayStatus, gpus: Sequence[GpuStatus]) -> str:
    age = status.age_seconds
    ago = "" if age is None else f", as of {span(age)} ago"
    ratios = (day.total.allocated_ratio, day.total.used_ratio)
    allocated, used_part = (shown(ratio, _percent) for ratio in ratios)
    names = Counter(_name(each) for each in day.pods)
    rows: list[tuple[str, AmountsStatus, _Columns]] = [
        (f"<b>{text(_unique_name(each, names))}</b>", each, _POD) for each in day.pods
    ]
    if day.others is not None:
        more = f"{amount(day.pods_left_out)} other pod{'' if day.pods_left_out == 1 else 's'}"
        rows.append((more, day.others, _POD))
    rows += [("unattributed", day.unattributed, _ALL), ("<b>total</b>", day.total, _ALL)]
    body = "".join(_row(name + _mark(usage), usage, columns) for name, usage, columns in rows)
    return (
        f'<p class="soft"><time datetime="{day.since.isoformat()}">{day.since:%Y-%m-%d %H:%M}'
        f'</time> to <time datetime="{day.until.isoformat()}">{day.until:%Y-%m-%d %H:%M} UTC'
        f"</time>{ago}. {_accounted(day)} Allocated: {allocated}. Used: {used_part}.</p>\n"
        + bar_graph(status.hours, timedelta(hours=1), _HOURS, "Allocated and used, by hour")
        + (f"{_LEGEND}" if status.hours else "")
        + table("day", "day", ("Pod", *_ALL), body)
        + _devices(day, gpus)
        + _notes(day)
        + _weeks(status)
    )


def _weeks(status: UsageStatus) -> str:
    """Return the bars of the last four weeks; empty before the second day."""
    if len(status.days) < 2:
        return ""
    graph = bar_graph(status.days, timedelta(days=1), MOST_DAYS, "Allocated and used, by day")
    first = status.days[0].since
    return (
        f'<h3 id="weeks">Last {MOST_DAYS} days</h3>\n{graph}'
        f'<p class="soft">Usage data since {first:%Y-%m-%d}; days are UTC.</p>\n'
    )


def _devices(day: DayStatus, gpus: Sequence[GpuStatus]) -> str:
    if not day.devices:
        return ""
    names = {gpu.uuid: gpu_name(gpu) for gpu in gpus if gpu.index is not None}
    for gpu in gpus:
        names |= {each.uuid: f"{gpu_name(gpu)}, {placement_text(each)}" for each in gpu.instances}
    rows = "".join(_device(each, names.get(each.uuid, "")) for each in day.devices)
    more = day.devices_left_out
    return (
        '<h3 id="cards">By device</h3>\n'
        + table("cards", "cards", ("Device", *_DEVICE), rows)
        + (f"<p>{amount(more)} more devices are not shown.</p>\n" if more else "")
    )


def _device(usage: DeviceAmountsStatus, name: str) -> str:
    """Return the row of a device.

    Args:
        usage: usage of the device.
        name: name of the device in the table of GPUs; empty if the device is not in that table.
    """
    model = f" {text(usage.name)}" if usage.name else ""
    short = f'<small title="{text(usage.uuid)}">{text(short_uuid(usage.uuid))}</small>'
    uuid = short if name else ""
    head = f"<b>{text(name or usage.uuid)}</b>{model}{_mark(usage)}{uuid}"
    return _row(head, usage, _DEVICE)


def _accounted(day: DayStatus) -> str:
    whole = hours(day.accounted_seconds + day.gap_seconds)
    if not day.gap_seconds:
        return f"All {whole} of all devices have usage data."
    return f"Of {whole} of all devices, {hours(day.gap_seconds)} have no usage data."


def _notes(day: DayStatus) -> str:
    others = () if day.others is None else (day.others,)
    rows = (*day.pods, day.unattributed, day.total, *others, *day.devices)
    if not any(each.incomplete for each in rows):
        return ""
    return '<p class="soft">* incomplete: a part of this value is unknown.</p>\n'


def _name(pod: PodAmountsStatus) -> str:
    if pod.pod is None:
        return f"uid {pod.uid or UNKNOWN}"
    return f"{pod.namespace}/{pod.pod}" if pod.namespace else pod.pod


def _unique_name(pod: PodAmountsStatus, names: Mapping[str, int]) -> str:
    """Return the name of a pod, with its UID if the name is not unique."""
    name = _name(pod)
    return name if names[name] < 2 else f"{name} (uid {pod.uid or UNKNOWN})"


def _row(head: str, usage: AmountsStatus, columns: _Columns) -> str:
    return row(head, "".join(cell(show(usage), "num", title) for title, show in columns.items()))


def _mark(usage: AmountsStatus) -> str:
    return " *" if usage.incomplete else ""


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


_ALL: Final[_Columns] = {
    "Held": lambda usage: shown(usage.held_seconds, hours),
    "Free": lambda usage: shown(usage.free_seconds, hours),
    "Unknown": lambda usage: shown(usage.unknown_seconds, hours),
    "Busy": lambda usage: shown(usage.busy_seconds, hours),
    "Idle": lambda usage: shown(usage.idle_seconds, hours),
    "Energy": lambda usage: shown(usage.energy_joules, kilowatt_hours),
}
_POD: Final[_Columns] = {**_ALL, "Free": lambda _: "", "Unknown": lambda _: ""}
"""A pod has neither free nor unknown time."""

_DEVICE: Final[_Columns] = {
    "Held": _ALL["Held"],
    "Free": _ALL["Free"],
    "Unknown": _ALL["Unknown"],
    "Allocated": lambda usage: shown(usage.allocated_ratio, _percent),
    "Used": lambda usage: shown(usage.used_ratio, _percent),
    "Busy": _ALL["Busy"],
    "Energy": _ALL["Energy"],
}
