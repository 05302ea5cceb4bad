"""Render the table of GPUs and MIG instances."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import (
    UNKNOWN,
    gpu_name,
    held,
    idle_seconds,
    memory,
    part,
    placement_text,
    short_uuid,
    size,
    span,
    unknown_reason,
)
from pipeline.status_page.html.elements import bar, cell, figure, row, table, text, unknown
from pipeline.status_page.html.graphs import LEAST_STEPS, line_graph
from pipeline.status_page.html.holder_cell import holders
from pipeline.status_page.problem_text import listed
from pipeline.status_page.status_document import (
    DeviceStatus,
    GpuStatus,
    InstanceStatus,
    State,
    StatusDocument,
)
from pipeline.status_page.use_format import ProblemStatus, ProcessStatus

FULL: Final = 0.95
"""Part of the memory from which on it is called nearly full."""

NEAR_CELSIUS: Final = 5.0
"""How far below the temperature at which it reduces its clocks a GPU is called close to it."""

HOT_CELSIUS: Final = 85.0
"""Temperature from which on a GPU is called hot if that temperature is not read."""

MOST_PROCESSES: Final = 3
"""Maximum number of processes of one device that the page lists without `debug`."""

_COLUMNS: Final = ("GPU", "Busy", "Memory", "Power", "Temp.", "Held by")
_CLASSES: Final = ("dev", "use", "mem", "pow", "tmp", "held")
_DEVICE_STATES: Final[dict[State, str]] = {
    "up": "",
    "lost": ' <span class="bad">lost</span>',
    "unknown": ' <span class="warn">state unknown</span>',
}


def gpus(status: StatusDocument, *, debug: bool = False) -> str:
    """Return the table of GPUs, or a sentence if no GPU is known.

    Args:
        status: the document.
        debug: whether to show whole UUIDs, all processes, and source and evidence of each holder.
    """
    if status.gpus is None:
        return "<p>No source has reported GPUs yet.</p>"
    if not status.gpus:
        return "<p>This node has no GPU.</p>"
    devices: list[DeviceStatus] = []
    for gpu in status.gpus:
        devices += [gpu, *gpu.instances]
    histories = [each.history for each in devices if each.history is not None]
    longest = max((len(each.utilization_percent) for each in histories), default=0)
    steps = max(longest, LEAST_STEPS)
    rows = _Rows(status, steps, debug)
    bodies = (
        rows.gpu(gpu) + "".join(rows.instance(each) for each in gpu.instances)
        for gpu in status.gpus
    )
    note = ""
    if histories:
        time = span(steps * histories[0].step_seconds)
        note = (
            f'<p class="soft">The graphs show the last {time}. How busy a container keeps a device '
            "is its mean over the last minute, and ± says by how much it may be wrong on a shared "
            "device.</p>\n"
        )
    return note + table("gpus", "gpus", _COLUMNS, *bodies, classes=_CLASSES)


class _Rows:
    """Renders the rows of devices.

    Args:
        status: the document.
        steps: width of the graphs of the last hour.
        debug: as of `gpus`.
    """

    def __init__(self, status: StatusDocument, steps: int, debug: bool) -> None:
        self._now: datetime = status.time
        self._steps = steps
        self._debug = debug
        self._problems: Mapping[str | None, list[ProblemStatus]] = _by_device(listed(status))

    def gpu(self, gpu: GpuStatus) -> str:
        name = f" {text(gpu.name)}" if gpu.name else ""
        uuid = self._uuid(gpu.uuid) if gpu.index is not None else ""
        count = held(gpu) if gpu.instances else ""
        shown = holders(gpu, self._now, instances=count, debug=self._debug)
        return row(
            f"<b>{text(gpu_name(gpu))}</b>{name}{_DEVICE_STATES[gpu.state]}{self._marker(gpu)}"
            f"{uuid}{self._processes(gpu)}",
            f"{_load(gpu, self._steps)}{cell(_power(gpu, self._steps), label='Power')}"
            f"{cell(_temperature(gpu), 'num', 'Temp.')}{cell(shown, 'wide')}",
        )

    def instance(self, each: InstanceStatus) -> str:
        state = _DEVICE_STATES[each.state] if each.state == "lost" else ""
        place = f'<span class="soft">{placement_text(each)}</span>'
        uuid = self._uuid(each.uuid) if self._debug else ""
        shown = holders(each, self._now, debug=self._debug)
        return row(
            f"<b>{text(each.profile or 'MIG')}</b> {place}{state}{self._marker(each)}{uuid}"
            f"{self._processes(each)}",
            f"{_load(each, self._steps)}{cell('', 'no') * 2}{cell(shown, 'wide')}",
            "mig",
        )

    def _uuid(self, uuid: str) -> str:
        shown = uuid if self._debug else short_uuid(uuid)
        return f'<small title="{text(uuid)}">{text(shown)}</small>'

    def _marker(self, device: DeviceStatus) -> str:
        """Return a link to the problems, if one is about this device."""
        found = self._problems.get(device.uuid, [])
        if not found:
            return ""
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        return f' <a class="{found[0].severity}" href="#problems">{count}</a>'

    def _processes(self, device: DeviceStatus) -> str:
        if not device.processes:
            return ""
        count = len(device.processes) + device.processes_left_out
        named = device.processes if self._debug else device.processes[:MOST_PROCESSES]
        more = count - len(named)
        title = f"{count} process{'' if count == 1 else 'es'}"
        pids = ", ".join(map(_process, named)) + (f" and {more} more" if more else "")
        return f"<small>{title}: {text(pids)}</small>"


def _by_device(problems: Sequence[ProblemStatus]) -> Mapping[str | None, list[ProblemStatus]]:
    found: dict[str | None, list[ProblemStatus]] = {}
    for one in problems:
        found.setdefault(one.device, []).append(one)
    return found


def _process(one: ProcessStatus) -> str:
    details = [] if one.kind == "compute" else [one.kind]
    if one.memory_used_bytes is not None:
        details.append(size(one.memory_used_bytes))
    return f"{one.pid} ({', '.join(details)})" if details else str(one.pid)


def _load(device: DeviceStatus, steps: int) -> str:
    """Return the cells of utilisation and memory, with the last hour."""
    use, history = device.utilization_percent, device.history
    busy = _value(device, use, "%", "utilization") + bar(part(use, 100), "u")
    used = memory(device)
    filled = part(device.memory_used_bytes, device.memory_total_bytes)
    is_full = filled is not None and filled >= FULL
    shown = unknown(unknown_reason(device, "memory")) if used == UNKNOWN else text(used)
    occupied = shown + bar(filled, "w" if is_full else "m")
    if history is not None:
        busy += _hour(history.utilization_percent, steps, 100, "u", "%")
        total = device.memory_total_bytes
        occupied += line_graph(
            history.memory_used_bytes, steps, total, "m", lambda one: size(int(one))
        )
    if is_full:
        occupied += '<small class="warn">nearly full</small>'
    if device.holders and (idle := idle_seconds(device)):
        busy += f'<small class="warn">idle for {span(idle)}</small>'
    return cell(busy, "num", "Busy") + cell(occupied, "num", "Memory")


def _power(gpu: GpuStatus, steps: int) -> str:
    limit = gpu.power_limit_watts
    if gpu.power_watts is not None and limit is not None:
        shown = f"{gpu.power_watts:.0f} of {figure(limit, 'W')}"
    else:
        shown = _value(gpu, gpu.power_watts, "W", "power")
    if gpu.history is None or gpu.history.power_watts is None:
        return shown
    return shown + _hour(gpu.history.power_watts, steps, limit, "p", "W")


def _hour(
    values: Sequence[float | None], steps: int, top: float | None, kind: str, unit: str
) -> str:
    return line_graph(values, steps, top, kind, lambda one: f"{one:.0f} {unit}")


def _temperature(gpu: GpuStatus) -> str:
    celsius, limit = gpu.temperature_celsius, gpu.temperature_slowdown_celsius
    shown = _value(gpu, celsius, "°C", "temperature")
    if celsius is None:
        return shown
    if limit is None:
        level, why = ("warn", "hot") if celsius >= HOT_CELSIUS else ("", "")
    elif celsius >= limit:
        level, why = "bad", f"at its limit of {limit:.0f}&nbsp;°C"
    elif celsius >= limit - NEAR_CELSIUS:
        level, why = "warn", f"near its limit of {limit:.0f}&nbsp;°C"
    else:
        level = why = ""
    return f'<span class="{level}">{shown}</span><small>{why}</small>' if level else shown


def _value(device: DeviceStatus, value: float | None, unit: str, what: str) -> str:
    return unknown(unknown_reason(device, what)) if value is None else figure(value, unit)
