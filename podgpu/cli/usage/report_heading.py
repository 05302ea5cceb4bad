"""The lines above a table of usage: where, when, and for how much time there is no usage data."""

import textwrap
from datetime import UTC, tzinfo
from typing import Final

from config.time_zones import zone_name
from pipeline.model.ledger_usage import Gap, UsageWindow
from podgpu.cli.terminal_text import terminal_safe
from podgpu.cli.usage.time_span import local
from podgpu.cli.usage.units import Scale

_MIN_WIDTH: Final = 20
"""Minimum width to which sentences are wrapped."""


def header(window: UsageWindow, what: str, times: Scale, width: int, tz: tzinfo = UTC) -> list[str]:
    """Return the lines above the table: node, time span, and how much time has no usage data.

    With sample data, the first line says so.

    Args:
        window: usage in the time span.
        what: what the table shows, for people.
        times: the unit of the table's times.
        width: width of the terminal; 0 if there is none.
        tz: the time zone of the report.
    """
    place = _place(window)
    where = f"{terminal_safe(place)}, " if place else ""
    when = f"{local(window.start_ns, tz)} to {local(window.end_ns, tz)} {zone_name(tz)}"
    lines = [f"{where}{when}, {what}", accounted(window, times)]
    if window.sample_data:
        lines.insert(0, f"sample data of {terminal_safe(window.sample_data)}, not measured")
    return [line for text in lines for line in wrapped(text, width)]


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a sentence, wrapped to the width of the terminal if there is one."""
    return textwrap.wrap(text, max(width, _MIN_WIDTH)) if width else [text]


def _place(window: UsageWindow) -> str:
    """Return the name of the node, or the numbers of nodes and clusters."""
    nodes = {(one.cluster, one.node) for one in window.totals}
    clusters = sorted({cluster for cluster, _ in nodes if cluster})
    if window.node or not window.has_places:
        return window.node
    first = next(iter(nodes))[1] if len(nodes) == 1 else f"{len(nodes)} nodes"
    if len(clusters) > 1:
        return f"{first} of {len(clusters)} clusters"
    return f"{first} of cluster {clusters[0]}" if clusters else first


def accounted(window: UsageWindow, times: Scale) -> str:
    """Return a sentence: for how much time there is usage data, and the reasons for gaps."""
    whole = sum(total.accounted_ns for total in window.totals)
    gaps = sum(total.gap_ns for total in window.totals)
    unit = f"{'device' if has_instances(window) else 'GPU'}-{times.unit.plural}"
    lines = f"{times.text(whole + gaps)} {unit}, "
    if not gaps:
        return f"{lines}all with usage data"
    why = ", ".join(
        f"{terminal_safe(reason)} ({'once' if count == 1 else f'{count} times'})"
        for reason, count in gap_counts(window)
    )
    return f"{lines}{times.text_alone(gaps)} without usage data" + (
        f": podgpu was {why}" if why else ""
    )


def gap_counts(window: UsageWindow) -> list[tuple[str, int]]:
    """Return each reason for gaps, and how often it occurred: first how often podgpu was down.

    Overlapping gaps of several devices count once.
    """
    if window.gap_counts is not None:
        return list(window.gap_counts)
    by_reason: dict[str, list[Gap]] = {}
    for gap in window.gaps:
        by_reason.setdefault(gap.reason, []).append(gap)
    found = []
    for reason in sorted(by_reason, key=lambda each: (each != "down", each)):
        count, until = 0, -1
        for gap in sorted(by_reason[reason], key=lambda each: each.start_ns):
            count += gap.start_ns > until
            until = max(until, gap.end_ns)
        found.append((reason, count))
    return found


def has_instances(window: UsageWindow) -> bool:
    """Whether a device is a MIG instance."""
    return any(total.device.startswith("MIG-") for total in window.totals)
