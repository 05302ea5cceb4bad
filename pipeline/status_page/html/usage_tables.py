"""What was used over the last 24 hours: a table of pods, and one of devices."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.status_page.display_text import (
    UNKNOWN,
    amount,
    gpu_name,
    hours,
    kilowatt_hours,
    placement_text,
    span,
)
from pipeline.status_page.html.elements import cell, known, table, text
from pipeline.status_page.status_document import (
    AmountsStatus,
    DayStatus,
    DeviceAmountsStatus,
    GpuStatus,
    PodAmountsStatus,
    UsageStatus,
)

_COLUMNS: Final = (
    ("Pod", "dev"),
    ("Held", ""),
    ("Free", ""),
    ("Unknown", ""),
    ("Busy", ""),
    ("Idle", ""),
    ("Energy", ""),
)

_OF_DEVICES: Final = (
    ("Device", "dev"),
    ("Held", ""),
    ("Free", ""),
    ("Unknown", ""),
    ("Allocated", ""),
    ("Used", ""),
    ("Busy", ""),
    ("Energy", ""),
)


def used(status: UsageStatus | None, gpus: Sequence[GpuStatus]) -> str:
    """Return the section; nothing where no ledger runs.

    Args:
        status: what a ledger tells.
        gpus: those that are there now, which are called as in their own table.
    """
    if status is None:
        return ""
    error = ""
    if status.error is not None:
        error = (
            f'<p class="warn">The ledger {text(status.sink)} cannot be read now: '
            f"{text(status.error)}</p>\n"
        )
    day = "" if status.day is None else _day(status.day, status.age_seconds, gpus)
    if not day and not error:
        told = (
            "is being read"
            if status.age_seconds is None
            else "has nothing of that time: see that nvml looks at who uses the devices (its "
            "options usage and processes)"
        )
        day = f"<p>The ledger {text(status.sink)} {told}.</p>\n"
    return f'<h2 id="day">Last 24 hours</h2>\n{error}{day}'


def _day(day: DayStatus, age: float | None, gpus: Sequence[GpuStatus]) -> str:
    ago = "" if age is None else f", as of {span(age)} ago"
    names = Counter(_name(each) for each in day.pods)
    rows = [_row(f"<b>{text(_own(each, names))}</b>", each) for each in day.pods]
    if day.others is not None:
        more = f"{amount(day.pods_left_out)} other pod{'' if day.pods_left_out == 1 else 's'}"
        rows.append(_row(more, day.others))
    rows.append(_row("unattributed", day.unattributed, whole=True))
    rows.append(_row("<b>total</b>", day.total, whole=True))
    return (
        f'<p class="soft"><time datetime="{day.since.isoformat()}">{day.since:%Y-%m-%d %H:%M}'
        f'</time> to <time datetime="{day.until.isoformat()}">{day.until:%Y-%m-%d %H:%M} UTC'
        f"</time>{ago}. {_accounted(day)} {_parts(day.total)}</p>\n"
        + table("day", "day", _COLUMNS, f'<tbody role="rowgroup">{"".join(rows)}</tbody>')
        + _devices(day, gpus)
        + _notes(day)
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
        + table("cards", "cards", _OF_DEVICES, f'<tbody role="rowgroup">{rows}</tbody>')
        + (f"<p>{amount(more)} more devices are not shown.</p>\n" if more else "")
    )


def _device(had: DeviceAmountsStatus, called: str) -> str:
    """Return the row of a device.

    Args:
        had: what there was of it.
        called: what it is called in the table of GPUs; empty if it isn't there.
    """
    model = f" {text(had.name)}" if had.name else ""
    uuid = f"<small>{text(had.uuid)}</small>" if called else ""
    mark = " *" if had.incomplete else ""
    return (
        f'<tr role="row"><th scope="row" role="rowheader"><b>{text(called or had.uuid)}</b>{model}'
        f"{mark}{uuid}</th>"
        f"{cell(_hours(had.held_seconds), 'num', 'Held')}"
        f"{cell(_hours(had.free_seconds), 'num', 'Free')}"
        f"{cell(_hours(had.unknown_seconds), 'num', 'Unknown')}"
        f"{cell(_percent(had.allocated_ratio), 'num', 'Allocated')}"
        f"{cell(_percent(had.used_ratio), 'num', 'Used')}"
        f"{cell(_hours(had.busy_seconds), 'num', 'Busy')}"
        f"{cell(_energy(had.energy_joules), 'num', 'Energy')}</tr>\n"
    )


def _accounted(day: DayStatus) -> str:
    whole = hours(day.accounted_seconds + day.gap_seconds)
    if not day.gap_seconds:
        return f"All of {whole} of all devices are accounted for."
    return f"Of {whole} of all devices, {hours(day.gap_seconds)} are not accounted for."


def _parts(total: AmountsStatus) -> str:
    return f"Allocated: {_percent(total.allocated_ratio)}. Used: {_percent(total.used_ratio)}."


def _notes(day: DayStatus) -> str:
    others = () if day.others is None else (day.others,)
    every = (*day.pods, day.unattributed, day.total, *others, *day.devices)
    if not any(each.incomplete for each in every):
        return ""
    return '<p class="soft">* a figure lacks what is not known.</p>\n'


def _name(pod: PodAmountsStatus) -> str:
    if pod.pod is None:
        return f"uid {pod.uid or UNKNOWN}"
    return f"{pod.namespace}/{pod.pod}" if pod.namespace else pod.pod


def _own(pod: PodAmountsStatus, names: Mapping[str, int]) -> str:
    """Return a pod's name, with its uid where another pod had that name."""
    name = _name(pod)
    return name if names[name] < 2 else f"{name} (uid {pod.uid or UNKNOWN})"


def _row(name: str, had: AmountsStatus, *, whole: bool = False) -> str:
    """Return a row; `whole` if it isn't a pod's, and so may have free and unknown time."""
    mark = " *" if had.incomplete else ""
    return (
        f'<tr role="row"><th scope="row" role="rowheader">{name}{mark}</th>'
        f"{cell(_hours(had.held_seconds), 'num', 'Held')}"
        f"{cell(_hours(had.free_seconds) if whole else '', 'num', 'Free')}"
        f"{cell(_hours(had.unknown_seconds) if whole else '', 'num', 'Unknown')}"
        f"{cell(_hours(had.busy_seconds), 'num', 'Busy')}"
        f"{cell(_hours(had.idle_seconds), 'num', 'Idle')}"
        f"{cell(_energy(had.energy_joules), 'num', 'Energy')}</tr>\n"
    )


def _hours(seconds: float | None) -> str:
    return known(UNKNOWN if seconds is None else hours(seconds))


def _percent(ratio: float | None) -> str:
    return known(UNKNOWN if ratio is None else f"{ratio * 100:.0f} %")


def _energy(joules: float | None) -> str:
    return known(UNKNOWN if joules is None else kilowatt_hours(joules))
