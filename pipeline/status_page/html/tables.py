"""Render the tables of GPUs, sources and sinks."""

from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import (
    UNKNOWN,
    access_text,
    amount,
    conflicts_text,
    gpu_name,
    held,
    holder_name,
    memory,
    part,
    placement_text,
    share_text,
    size,
    span,
    unheld_text,
    unresolved_text,
)
from pipeline.status_page.html.elements import bar, cell, figure, known, row, shown, table, text
from pipeline.status_page.status_document import (
    DeviceStatus,
    ErrorStatus,
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    SinkStatus,
    SourceStatus,
    State,
    StatusDocument,
)

MOST_HOLDERS: Final = 8
"""Maximum number of holders of one device that the page shows. `/status` has more."""

_COLUMNS: Final = ("GPU", "Use", "Memory", "Power", "Temp.", "Held by")
_CLASSES: Final = ("dev", "use", "mem", "", "", "held")
_DEVICE_STATES: Final[dict[State, str]] = {
    "up": "",
    "lost": ' <span class="bad">lost</span>',
    "unknown": ' <span class="warn">state unknown</span>',
}
_SOURCES: Final = ("Source", "State", "Last report", "Holders confirmed", "Restarts", "Last error")
_SINKS: Final = ("Sink", "State", "Emitted", "Queued", "Lost", "Last error")
_STATES: Final = {
    "up": "up",
    "down": '<span class="bad">down</span>',
    "waiting": '<span class="warn">no report yet</span>',
}


def gpus(status: StatusDocument) -> str:
    """Return the table of GPUs, or a sentence if no GPU is known."""
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
        f"<b>{text(gpu_name(gpu))}</b>{name}{_DEVICE_STATES[gpu.state]}{uuid}",
        f"{_load(gpu)}{cell(power, label='Power')}{temperature}{cell(holders, 'wide')}",
    )


def _instance(each: InstanceStatus, now: datetime) -> str:
    state = _DEVICE_STATES[each.state] if each.state == "lost" else ""
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
    parts = [f'<div class="soft">{text(instances)}</div>'] if instances else []
    if device.holders:
        parts += [_holder(each, now) for each in device.holders[:MOST_HOLDERS]]
        more = len(device.holders[MOST_HOLDERS:]) + device.holders_left_out
        if more:
            parts.append(
                f'<div class="soft">and {more} more: see <a href="./status">/status</a></div>'
            )
    elif not instances:
        parts.append(f'<span class="soft">{known(unheld_text(device))}</span>')
    if note := conflicts_text(device):
        parts.append(f'<div class="warn">{note}</div>')
    if note := access_text(device):
        parts.append(f'<div class="soft">{note}: see <a href="./status">/status</a></div>')
    return "".join(parts)


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


def sources(found: tuple[SourceStatus, ...]) -> str:
    """Return the table of sources."""
    return table("parts", "sources", _SOURCES, "".join(map(_source, found)))


def sinks(found: tuple[SinkStatus, ...]) -> str:
    """Return the table of sinks, or a sentence if there are none."""
    if not found:
        return "<p>No sinks are configured.</p>"
    return table("parts", "sinks", _SINKS, "".join(map(_sink, found)))


def _row(name: str, kind: str | None, *cells: str) -> str:
    kind_text = f' <span class="soft">{text(kind)}</span>' if kind and kind != name else ""
    return row(f"<b>{text(name)}</b>{kind_text}", "".join(cells))


def _source(source: SourceStatus) -> str:
    unresolved = unresolved_text(source.unresolved)
    note = f'<small class="warn">{unresolved}</small>' if unresolved else ""
    confirmed = source.confirmed_seconds
    return _row(
        source.name,
        source.kind,
        cell(_STATES[source.state] + note, label="State"),
        cell(shown(source.age_seconds, _ago), "num", "Last report"),
        # Empty for a source that reports no holders.
        cell(_ago(confirmed), "num", "Holders confirmed")
        if confirmed is not None
        else cell("", "no"),
        cell(shown(source.restarts, amount), "num", "Restarts"),
        cell(_error(source.error), "wide", "Last error"),
    )


def _sink(sink: SinkStatus) -> str:
    state = '<span class="bad">down</span>'
    if sink.up is None:
        state = known(UNKNOWN)
    elif sink.up:
        state = "up"
        if sink.delivering is not None:
            state = "delivering" if sink.delivering else '<span class="bad">not delivering</span>'
    if sink.queue_writable is False:
        state += '<small class="bad">its queue cannot be written to disk</small>'
    queued = shown(sink.queued, amount)
    if sink.queued and sink.oldest_seconds is not None:
        queued += f", oldest {span(sink.oldest_seconds)}"
    if sink.queue_bytes:
        queued += f"<small>{size(sink.queue_bytes)}</small>"
    lost = [
        f'<span class="warn">{amount(count)} {word}</span>'
        for count, word in ((sink.dropped, "dropped"), (sink.rejected, "rejected"))
        if count
    ]
    if sink.errors:
        lost.append(f'<small class="warn">{amount(sink.errors)} other errors</small>')
    none = shown(0 if sink.dropped is not None else None, amount)
    return _row(
        sink.name,
        sink.kind,
        cell(state, label="State"),
        cell(shown(sink.emitted, amount), "num", "Emitted"),
        cell(queued, "num", "Queued"),
        cell("<br>".join(lost) or none, "num", "Lost"),
        cell(_error(sink.error), "wide", "Last error"),
    )


def _error(error: ErrorStatus | None) -> str:
    if error is None:
        return '<span class="soft">none</span>'
    age = "" if error.age_seconds is None else _ago(error.age_seconds)
    when = ", ".join(word for word in (age, "resolved" if error.over else "") if word)
    suffix = f' <span class="soft">({when})</span>' if when else ""
    kind = {True: "soft", False: "bad", None: "warn"}[error.over]
    return f'<span class="{kind}">{text(error.text)}</span>{suffix}'


def _ago(seconds: float) -> str:
    return f"{span(seconds)} ago"
