"""Draws a whole dashboard."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.deploy.drawing.panels import Place, Shown, draw
from tests.deploy.drawing.svg import FAINT, Svg

_COLUMN, _HEIGHT, _GAP, _HEAD = 62.0, 30.0, 8.0, 60.0


def board(
    dashboard: Mapping[str, Any],
    shows: Callable[[Mapping[str, Any]], Shown],
    chosen: Mapping[str, str],
) -> str:
    """Return the picture of a dashboard.

    Args:
        dashboard: its JSON.
        shows: returns what a panel shows.
        chosen: the values of its variables.
    """
    svg = Svg()
    svg.text(12, 26, dashboard["title"], size=18, bold=True)
    svg.text(12, 46, "   ".join(f"{name}: {value}" for name, value in chosen.items()), fill=FAINT)
    bottom = 0.0
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        place = Place(
            grid["x"] * _COLUMN + _GAP,
            _HEAD + grid["y"] * (_HEIGHT + _GAP),
            grid["w"] * _COLUMN - _GAP,
            grid["h"] * (_HEIGHT + _GAP) - _GAP,
        )
        bottom = max(bottom, place.y + place.height)
        if panel["type"] == "row":
            svg.text(place.x, place.y + 20, f"▾ {panel['title']}", size=15, bold=True)
        else:
            draw(svg, panel, place, shows(panel))
    return svg.whole(24 * _COLUMN + _GAP, bottom + _GAP)
