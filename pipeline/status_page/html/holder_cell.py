"""Render who holds or uses a device, and what each uses of it."""

from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import (
    UNKNOWN,
    access_text,
    busy_text,
    conflicts_text,
    facts_text,
    holder_name,
    kilowatt_hours,
    part,
    share_text,
    size,
    span,
    unheld_text,
    unknown_reason,
)
from pipeline.status_page.html.elements import bar, text, unknown
from pipeline.status_page.status_document import DeviceStatus, HolderStatus
from pipeline.status_page.use_format import ContainerStatus, UseStatus

MOST_HOLDERS: Final = 8
"""Maximum number of holders of one device that the page shows. `/status` has more."""

_LEAST_UNATTRIBUTED: Final = 0.01
"""Part of the memory from which on memory of no known container is shown."""


def holders(device: DeviceStatus, now: datetime, *, instances: str = "", debug: bool) -> str:
    """Return the content of the cell with the holders of a device.

    Args:
        device: the device.
        now: the time of the document.
        instances: how many of its instances are held; empty for a device without instances.
        debug: whether to show source and evidence of each holder.
    """
    parts = [f'<div class="soft">{text(instances)}</div>'] if instances else []
    if device.holders:
        parts += [_holder(each, device, now, debug) for each in device.holders[:MOST_HOLDERS]]
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
        note = '<span class="warn">uses it without holding it</span>'
        parts.append(_who(user, f" {note}", user.use, device))
    if more := len(device.users[MOST_HOLDERS:]) + device.users_left_out:
        parts.append(f'<div class="soft">and {more} more without holding it</div>')
    parts += _unattributed(device)
    if note := conflicts_text(device):
        parts.append(f'<div class="warn">{note}</div>')
    if note := access_text(device):
        parts.append(f'<div class="soft">{note}: see <a href="./status">/status</a></div>')
    return "".join(parts)


def _holder(holder: HolderStatus, device: DeviceStatus, now: datetime, debug: bool) -> str:
    share = share_text(holder)
    least = "" if holder.since_known else "at least "
    long = span((now - holder.since).total_seconds())
    since = f'{least}<time datetime="{holder.since.isoformat()}">{_kept(long)}</time>'
    origin = _origin(holder) if debug else ""
    facts = f"{text(facts_text(holder))}, " if facts_text(holder) else ""
    notes = f'{f", {share}" if share else ""} <span class="soft">{facts}for {since}{origin}</span>'
    return _who(holder, notes, holder.use, device)


def _who(one: ContainerStatus, notes: str, use: UseStatus | None, device: DeviceStatus) -> str:
    own = "" if use is None else _use(use, device)
    return f'<div class="who"><b>{text(holder_name(one))}</b>{notes}{own}</div>'


def _origin(holder: HolderStatus) -> str:
    age = f", {span(holder.age_seconds)} ago" if holder.age_seconds is not None else ""
    evidence = text(holder.evidence.replace("_", " "))
    return f", reported by {text(holder.source)} ({evidence}{age})"


def _use(use: UseStatus, device: DeviceStatus) -> str:
    """Return what a container uses; empty if nothing of it is known."""
    busy = memory = energy = ""
    if percent := busy_text(use, " %"):
        busy = f"{_kept(percent)} busy{bar(part(use.busy_percent, 100), 'u')}"
    if use.memory_used_bytes is not None:
        filled = part(use.memory_used_bytes, device.memory_total_bytes)
        memory = f"{_kept(size(use.memory_used_bytes))}{bar(filled, 'm')}"
    if use.energy_joules is not None:
        least = "at least " if use.incomplete else ""
        energy = f"{least}{kilowatt_hours(use.energy_joules)}"
    if not busy + memory + energy:
        return ""
    return f'<div class="own"><div>{busy}</div> <div>{memory}</div> <div>{energy}</div></div>'


def _unattributed(device: DeviceStatus) -> list[str]:
    found = device.memory_unattributed_bytes
    filled = part(found, device.memory_total_bytes)
    if found is None or filled is None or filled < _LEAST_UNATTRIBUTED:
        return []
    return [f'<div class="warn">no known container uses {_kept(size(found))}</div>']


def _kept(figure: str) -> str:
    """Return a number with its unit, between which a line does not break."""
    return figure.replace(" ", "&nbsp;")
