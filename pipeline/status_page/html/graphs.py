"""Graphs as inline SVG: the last hour of a GPU, and bars of hours or days."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from pipeline.status_page.html.elements import text
from pipeline.status_page.use_format import PeriodStatus

LEAST_STEPS: Final = 10
"""Minimum width of a graph of the last hour, in steps."""

_HEIGHT: Final = 24
_BAR: Final = 10
_BAR_HEIGHT: Final = 40


def line_graph(
    values: Sequence[float | None],
    steps: int,
    top: float | None,
    kind: str,
    form: Callable[[float], str],
) -> str:
    """Return a graph of the last hour; empty if no value is known.

    The right edge is the present, and a gap is a time without readings.

    Args:
        values: one value per step, the oldest first; None if it is unknown.
        steps: width of the graph in steps; at least the number of values.
        top: value at the upper edge; None for the largest of the values.
        kind: CSS class of the line.
        form: function that returns a value as text.
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    upper = max(top or 0.0, *known, 1e-9)
    start = steps - len(values)
    runs: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            y = _HEIGHT - 1 - max(value / upper, 0.0) * (_HEIGHT - 2)
            runs[-1].append(f"{start + place},{y:.0f}")
    # A single point is drawn as a short line.
    path = "".join(f"M{' '.join(run)}{'h1' if len(run) == 1 else ''}" for run in runs if run)
    label = f"from {form(min(known))} to {form(max(known))}"
    return (
        f'<svg class="hour" viewBox="0 0 {steps} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{text(label)}"><path class="{kind}" d="{path}"/></svg>'
    )


def bar_graph(periods: Sequence[PeriodStatus], length: timedelta, count: int, name: str) -> str:
    """Return bars of hours or days: the allocated part, and the used part in front of it.

    Args:
        periods: the periods, the oldest first; those without usage data may be missing.
        length: length of a period.
        count: number of bars. The last one is the last of the periods.
        name: what the bars are, for screen readers.
    """
    if not periods:
        return ""
    last = periods[-1].since
    bars = "".join(
        _bar(each, count - 1 - _steps(each.since, last, length), length)
        for each in periods
        if _steps(each.since, last, length) < count
    )
    width = count * _BAR
    return (
        f'<svg class="bars" viewBox="0 0 {width} {_BAR_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{text(name)}">'
        f'<rect class="t" width="{width}" height="{_BAR_HEIGHT}"/>{bars}</svg>'
    )


def _steps(since: datetime, last: datetime, length: timedelta) -> int:
    return round((last - since) / length)


def _bar(each: PeriodStatus, place: int, length: timedelta) -> str:
    when = f"{each.since:%Y-%m-%d}" if length >= timedelta(days=1) else f"{each.since:%H:%M} UTC"
    parts = [
        (ratio, kind, word)
        for ratio, kind, word in (
            (each.allocated_ratio, "m", "allocated"),
            (each.used_ratio, "u", "used"),
        )
        if ratio is not None
    ]
    said = ", ".join(f"{word} {ratio * 100:.0f} %" for ratio, _, word in parts) or "unknown"
    rects = "".join(_rect(place, ratio, kind) for ratio, kind, _ in parts)
    return f"<g><title>{when}: {said}</title>{rects}</g>"


def _rect(place: int, ratio: float, kind: str) -> str:
    height = min(max(ratio, 0.0), 1.0) * _BAR_HEIGHT
    # The used part is narrower, so that both are seen where they are equal.
    inset = 1 if kind == "m" else 3
    return (
        f'<rect class="{kind}" x="{place * _BAR + inset}" y="{_BAR_HEIGHT - height:.1f}" '
        f'width="{_BAR - 2 * inset}" height="{height:.1f}"/>'
    )
