"""Elements of SVG."""

from collections.abc import Iterable
from html import escape

TEXT, FAINT, GROUND, PANEL, LINE = "#ccccdc", "#8e8e9a", "#111217", "#181b1f", "#2c3036"


class Svg:
    """A picture, to which elements are added from left to right and from top to bottom."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *, faint: float = 1
    ) -> None:
        """Add a rectangle."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
            f'height="{max(height, 0):.1f}" fill="{fill}" fill-opacity="{faint:g}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        fill: str = TEXT,
        size: float = 12,
        anchor: str = "start",
        room: float = 0,
        bold: bool = False,
    ) -> None:
        """Add a text; `y` is its base line, and `room` the width after which it is cut."""
        most = int(room / (size * 0.54)) if room else len(words)
        cut = words if len(words) <= most else words[: max(most - 1, 1)] + "…"
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size:g}" '
            f'text-anchor="{anchor}"{weight}>{escape(cut)}</text>'
        )

    def line(
        self,
        points: Iterable[tuple[float, float]],
        stroke: str,
        *,
        dashes: str = "",
        width: int = 1,
    ) -> None:
        """Add a line through points."""
        listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{listed}" fill="none" stroke="{stroke}" stroke-width="{width}" '
            f'stroke-dasharray="{dashes}"/>'
        )

    def area(self, points: Iterable[tuple[float, float]], fill: str, opacity: float) -> None:
        """Add a filled area."""
        listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon points="{listed}" fill="{fill}" fill-opacity="{opacity:g}"/>')

    def whole(self, width: float, height: float) -> str:
        """Return the picture."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'font-family="Inter, DejaVu Sans, sans-serif">'
            f'<rect width="100%" height="100%" fill="{GROUND}"/>{"".join(self.parts)}</svg>\n'
        )
