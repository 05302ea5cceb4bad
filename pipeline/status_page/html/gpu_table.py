"""Render the table of GPUs."""

from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import (
    access_text,
    conflicts_text,
    gpu_name,
    held,
    holder_name,
    memory,
    part,
    placement_text,
    share_text,
    span,
    unheld_text,
)
from pipeline.status_page.html.elements import bar, cell, figure, known, row, table, text
from pipeline.status_page.status_document import (
    DeviceStatus,
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    State,
    StatusDocument,
)

MOST: Final = 8
"""Most holders of one device that the page shows; `/status` has more."""

_COLUMNS: Final = ("GPU", "Use", "Memory", "Power", "Temp.", "Held by")
_CLASSES: Final = ("dev", "use", "mem", "", "", "held")
_STATES: Final[dict[State, str]] = {
    "up": "",
    "lost": ' <span class="bad">lost</span>',
    "unknown": ' <span class="warn">state unknown</span>',
}


def gpus(status: StatusDocument) -> str:
    """Return the table, or a sentence if there is no GPU."""
    if status.gpus is None:
        return "<p>No source has reported GPUs yet.</p>"
    if not status.gpus:
        return "<p>This node has no GPU.</p>"
    bodies = (
        _gpu(gpu, status.time) + "".join(_instance(each, status.time) for each in gpu.instances)
        for gpu in status.gpus
    )
    return table("gpus", "gpus", _COLUMNS, *bodies, classes=_CLASSES)


def _gpu(gpu: GpuStatus, now: datetime) -> str:
    name = f" {text(gpu.name)}" if gpu.name else ""
    uuid = f"<small>{text(gpu.uuid)}</small>" if gpu.index is not None else ""
    power = figure(gpu.power_watts, "W")
    if gpu.power_limit_watts is not None:
        power += f" of {figure(gpu.power_limit_watts, 'W')}"
    holders = _holders(gpu, now, instances=held(gpu) if gpu.instances else "")
    temperature = cell(figure(gpu.temperature_celsius, "°C"), "num", "Temp.")
    return row(
        f"<b>{text(gpu_name(gpu))}</b>{name}{_STATES[gpu.state]}{uuid}",
        f"{_load(gpu)}{cell(power, label='Power')}{temperature}{cell(holders, 'wide')}",
    )


def _instance(each: InstanceStatus, now: datetime) -> str:
    state = _STATES[each.state] if each.state == "lost" else ""
    place = f'<span class="soft">{placement_text(each)}</span>'
    return row(
        f"<b>{text(each.profile or 'MIG')}</b> {place}{state}",
        f"{_load(each)}{cell('', 'no') * 2}{cell(_holders(each, now), 'wide')}",
        "mig",
    )


def _load(device: DeviceStatus) -> str:
    use, used = device.utilization_percent, memory(device)
    filled = part(device.memory_used_bytes, device.memory_total_bytes)
    return cell(f"{figure(use, '%')}{bar(part(use, 100), 'u')}", "num", "Use") + cell(
        f"{known(used)}{bar(filled, 'm')}", "num", "Memory"
    )


def _holders(device: DeviceStatus, now: datetime, instances: str = "") -> str:
    shown = [f'<div class="soft">{text(instances)}</div>'] if instances else []
    if device.holders:
        shown += [_holder(each, now) for each in device.holders[:MOST]]
        more = len(device.holders[MOST:]) + device.holders_left_out
        if more:
            shown.append(
                f'<div class="soft">and {more} more: see <a href="./status">/status</a></div>'
            )
    elif not instances:
        shown.append(f'<span class="soft">{known(unheld_text(device))}</span>')
    if note := conflicts_text(device):
        shown.append(f'<div class="warn">{note}</div>')
    if note := access_text(device):
        shown.append(f'<div class="soft">{note}: see <a href="./status">/status</a></div>')
    return "".join(shown)


def _holder(holder: HolderStatus, now: datetime) -> str:
    share = share_text(holder)
    age = f", {span(holder.age_seconds)} ago" if holder.age_seconds is not None else ""
    least = "" if holder.since_known else "at least "
    long = span((now - holder.since).total_seconds())
    since = f'{least}<time datetime="{holder.since.isoformat()}">{long}</time>'
    return (
        f'<div class="who"><b>{text(holder_name(holder))}</b>{f", {share}" if share else ""} '
        f'<span class="soft">for {since}, '
        f"reported by {text(holder.source)} ({text(holder.evidence.replace('_', ' '))}{age})"
        "</span></div>"
    )
