"""Names the nodes that have usage for only a part of a report's time.

A node whose archive is not written is missing in sums, and nothing else in a table shows it.
"""

from typing import Final

from pipeline.model.ledger_usage import UsageWindow
from podgpu.cli.terminal_text import terminal_safe

_HOUR_NS: Final = 3_600_000_000_000
_LATE_NS: Final = 3 * _HOUR_NS
"""Nodes write an hour to an archive at different times, up to two hours after the end of it."""
_SHOWN: Final = 3


def partial_nodes(window: UsageWindow) -> str:
    """Return a sentence about nodes without usage for three hours or more; else an empty text.

    A node has usage as long as the device of it that has most. The shortest are named first.
    """
    span_ns = window.end_ns - window.start_ns
    known: dict[tuple[str, str], int] = {}
    for total in window.totals:
        place = total.cluster, total.node
        known[place] = max(known.get(place, 0), total.accounted_ns + total.gap_ns)
    partial = sorted((ns, place) for place, ns in known.items() if span_ns - ns >= _LATE_NS)
    if not partial:
        return ""
    named = ", ".join(
        f"{terminal_safe('/'.join(filter(None, place)))} ({ns // _HOUR_NS} of "
        f"{span_ns // _HOUR_NS} h)"
        for ns, place in partial[:_SHOWN]
    )
    more = f" and {len(partial) - _SHOWN} more" if len(partial) > _SHOWN else ""
    return (
        f"{len(partial)} of {len(known)} nodes {'has' if len(partial) == 1 else 'have'} usage for "
        f"only a part of this time: {named}{more}. Unless a node was added or removed, its usage "
        "is not complete: run podgpu doctor on it"
    )
