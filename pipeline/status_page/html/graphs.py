"""Graphs of the last hour of a device, as inline SVG."""

from collections.abc import Callable, Sequence
from typing import Final

from pipeline.status_page.html.elements import text

LEAST_STEPS: Final = 10
"""Minimum width of a graph of the last hour, in steps."""

_HEIGHT: Final = 24


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
    runs: list[list[tuple[int, int]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            y = _HEIGHT - 1 - max(value / upper, 0.0) * (_HEIGHT - 2)
            runs[-1].append((start + place, round(y)))
    path = "".join(map(_path, runs))
    label = f"from {form(min(known))} to {form(max(known))}"
    return (
        f'<svg class="hour" viewBox="0 0 {steps} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{text(label)}"><path class="{kind}" d="{path}"/></svg>'
    )


def _path(run: Sequence[tuple[int, int]]) -> str:
    """Return the line through the points, without those in the middle of a horizontal part."""
    corners = [
        f"{x},{y}"
        for at, (x, y) in enumerate(run)
        if at in {0, len(run) - 1} or not run[at - 1][1] == y == run[at + 1][1]
    ]
    if not corners:
        return ""
    # A single point is drawn as a short line.
    return f"M{' '.join(corners)}{'h1' if len(corners) == 1 else ''}"
