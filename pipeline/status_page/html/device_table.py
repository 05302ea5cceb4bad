"""Render the table of GPUs and MIG instances."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import (
    UNKNOWN,
    access_text,
    conflicts_text,
    gpu_name,
    held,
    holder_name,
    idle_seconds,
    kilowatt_hours,
    memory,
    part,
    placement_text,
    share_text,
    short_uuid,
    size,
    span,
    unheld_text,
    unknown_reason,
)
from pipeline.status_page.html.elements import bar, cell, figure, row, table, text, unknown
from pipeline.status_page.html.graphs import LEAST_STEPS, line_graph
from pipeline.status_page.status_document import (
    DeviceStatus,
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    State,
    StatusDocument,
)
from pipeline.status_page.use_format import ProcessStatus, UseStatus

MOST_HOLDERS: Final = 8
"""Maximum number of holders of one device that the page shows. `/status` has more."""

FULL: Final = 0.95
"""Part of the memory from which on its bar has another colour."""

HOT: Final = 85
"""Temperature in degrees Celsius from which on it has another colour."""

_COLUMNS: Final = ("GPU", "Use", "Memory", "Power", "Temp.", "Held by")
_CLASSES: Final = ("dev", "use", "mem", "pow", "", "held")
_DEVICE_STATES: Final[dict[State, str]] = {
    "up": "",
    "lost": ' <span class="bad">lost</span>',
    "unknown": ' <span class="warn">state unknown</span>',
}


def gpus(status: StatusDocument, *, debug: bool = False) -> str:
    """Return the table of GPUs, or a sentence if no GPU is known.

    Args:
        status: the document.
        debug: whether to show whole UUIDs, and source and evidence of each holder.
    """
    if status.gpus is None:
        return "<p>No source has reported GPUs yet.</p>"
    if not status.gpus:
        return "<p>This node has no GPU.</p>"
    histories = [gpu.history for gpu in status.gpus if gpu.history is not None]
    longest = max((len(each.power_watts) for each in histories), default=0)
    steps = max(longest, LEAST_STEPS)
    rows = _Rows(status.time, steps, debug)
    bodies = (
        rows.gpu(gpu) + "".join(rows.instance(each) for each in gpu.instances)
        for gpu in status.gpus
    )
    note = ""
    if histories:
        time = span(steps * histories[0].step_seconds)
        note = f'<p class="soft">The graphs show the last {time}.</p>\n'
    return note + table("gpus", "gpus", _COLUMNS, *bodies, classes=_CLASSES)


class _Rows:
    """Renders the rows of devices.

    Args:
        now: the time of the document.
        steps: width of the graphs of the last hour.
        debug: as of `gpus`.
    """

    def __init__(self, now: datetime, steps: int, debug: bool) -> None:
        self._now = now
        self._steps = steps
        self._debug = debug

    def gpu(self, gpu: GpuStatus) -> str:
        name = f" {text(gpu.name)}" if gpu.name else ""
        uuid = self._uuid(gpu.uuid) if gpu.index is not None else ""
        holders = self._holders(gpu, instances=held(gpu) if gpu.instances else "")
        return row(
            f"<b>{text(gpu_name(gpu))}</b>{name}{_DEVICE_STATES[gpu.state]}{uuid}"
            f"{self._processes(gpu)}",
            f"{_load(gpu, self._steps)}{cell(_power(gpu, self._steps), label='Power')}"
            f"{cell(_temperature(gpu), 'num', 'Temp.')}{cell(holders, 'wide')}",
        )

    def instance(self, each: InstanceStatus) -> str:
        state = _DEVICE_STATES[each.state] if each.state == "lost" else ""
        place = f'<span class="soft">{placement_text(each)}</span>'
        uuid = self._uuid(each.uuid) if self._debug else ""
        return row(
            f"<b>{text(each.profile or 'MIG')}</b> {place}{state}{uuid}{self._processes(each)}",
            f"{_load(each, self._steps)}{cell('', 'no') * 2}{cell(self._holders(each), 'wide')}",
            "mig",
        )

    def _uuid(self, uuid: str) -> str:
        shown = uuid if self._debug else short_uuid(uuid)
        return f'<small title="{text(uuid)}">{text(shown)}</small>'

    def _processes(self, device: DeviceStatus) -> str:
        if not device.processes:
            return ""
        count = len(device.processes) + device.processes_left_out
        more = device.processes_left_out
        listed = ", ".join(map(_process, device.processes)) + (f" and {more} more" if more else "")
        title = f"{count} process{'' if count == 1 else 'es'}"
        if self._debug:
            return f"<small>{title}: {text(listed)}</small>"
        return f"<details><summary>{title}</summary>{text(listed)}</details>"

    def _holders(self, device: DeviceStatus, instances: str = "") -> str:
        parts = [f'<div class="soft">{text(instances)}</div>'] if instances else []
        if device.holders:
            parts += [self._holder(each) for each in device.holders[:MOST_HOLDERS]]
            more = len(device.holders[MOST_HOLDERS:]) + device.holders_left_out
            if more:
                parts.append(
                    f'<div class="soft">and {more} more: see <a href="./status">/status</a></div>'
                )
        elif not instances:
            free = unheld_text(device)
            shown = unknown(unknown_reason(device, "holders")) if free == UNKNOWN else text(free)
            parts.append(f'<span class="soft">{shown}</span>')
        for user in device.users[:MOST_HOLDERS]:
            parts.append(
                f'<div class="who"><b>{text(holder_name(user))}</b> <span class="warn">uses it '
                f"without holding it</span>{_use(user.use)}</div>"
            )
        if more := len(device.users[MOST_HOLDERS:]) + device.users_left_out:
            parts.append(f'<div class="soft">and {more} more without holding it</div>')
        if note := conflicts_text(device):
            parts.append(f'<div class="warn">{note}</div>')
        if note := access_text(device):
            parts.append(f'<div class="soft">{note}: see <a href="./status">/status</a></div>')
        return "".join(parts)

    def _holder(self, holder: HolderStatus) -> str:
        share = share_text(holder)
        least = "" if holder.since_known else "at least "
        long = span((self._now - holder.since).total_seconds())
        since = f'{least}<time datetime="{holder.since.isoformat()}">{long}</time>'
        origin = self._origin(holder) if self._debug else ""
        return (
            f'<div class="who"><b>{text(holder_name(holder))}</b>{f", {share}" if share else ""} '
            f'<span class="soft">for {since}{origin}</span>'
            f"{'' if holder.use is None else _use(holder.use)}</div>"
        )

    @staticmethod
    def _origin(holder: HolderStatus) -> str:
        age = f", {span(holder.age_seconds)} ago" if holder.age_seconds is not None else ""
        evidence = text(holder.evidence.replace("_", " "))
        return f", reported by {text(holder.source)} ({evidence}{age})"


def _use(use: UseStatus) -> str:
    """Return what a container uses; empty if nothing of it is known."""
    known: list[str] = []
    if use.busy_percent is not None:
        known.append(f"{use.busy_percent:.0f}&nbsp;% busy")
    if use.memory_used_bytes is not None:
        known.append(size(use.memory_used_bytes).replace(" ", "&nbsp;"))
    if use.energy_joules is not None:
        known.append(kilowatt_hours(use.energy_joules))
    return f"<div>{', '.join(known)}</div>" if known else ""


def _process(one: ProcessStatus) -> str:
    details = [] if one.kind == "compute" else [one.kind]
    if one.memory_used_bytes is not None:
        details.append(size(one.memory_used_bytes))
    return f"{one.pid} ({', '.join(details)})" if details else str(one.pid)


def _load(device: DeviceStatus, steps: int) -> str:
    """Return the cells of utilisation and memory, with the last hour of a GPU."""
    use, history = device.utilization_percent, None
    if isinstance(device, GpuStatus):
        history = device.history
    busy = _value(device, use, "%", "utilization", visible=True) + bar(part(use, 100), "u")
    used = memory(device)
    filled = part(device.memory_used_bytes, device.memory_total_bytes)
    shown = unknown(unknown_reason(device, "memory")) if used == UNKNOWN else text(used)
    occupied = shown + bar(filled, "m" if filled is None or filled < FULL else "w")
    if history is not None:
        busy += _hour(history.utilization_percent, steps, 100, "u", "%")
        total = device.memory_total_bytes
        occupied += line_graph(
            history.memory_used_bytes, steps, total, "m", lambda one: size(int(one))
        )
    if device.holders and (idle := idle_seconds(device)):
        busy += f'<small class="warn">idle for {span(idle)}</small>'
    return cell(busy, "num", "Use") + cell(occupied, "num", "Memory")


def _power(gpu: GpuStatus, steps: int) -> str:
    shown = _value(gpu, gpu.power_watts, "W", "power")
    if gpu.power_limit_watts is not None:
        shown += f" of {figure(gpu.power_limit_watts, 'W')}"
    if gpu.history is None:
        return shown
    return shown + _hour(gpu.history.power_watts, steps, gpu.power_limit_watts, "p", "W")


def _hour(
    values: Sequence[float | None], steps: int, top: float | None, kind: str, unit: str
) -> str:
    return line_graph(values, steps, top, kind, lambda one: f"{one:.0f} {unit}")


def _temperature(gpu: GpuStatus) -> str:
    shown = _value(gpu, gpu.temperature_celsius, "°C", "temperature")
    is_hot = gpu.temperature_celsius is not None and gpu.temperature_celsius >= HOT
    return f'<span class="warn">{shown}</span>' if is_hot else shown


def _value(
    device: DeviceStatus, value: float | None, unit: str, what: str, *, visible: bool = False
) -> str:
    if value is not None:
        return figure(value, unit)
    return unknown(unknown_reason(device, what), visible=visible)
