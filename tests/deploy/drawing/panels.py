"""Draws the panels of each kind into a place of a picture."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.deploy.drawing.svg import FAINT, LINE, PANEL, Svg
from tests.deploy.drawing.tables import rows, titles
from tests.deploy.drawing.values import PALETTE, colour, number, of_field, shown, threshold
from tests.e2e.promql import Series

_TITLE, _ROW, _AXIS = 30.0, 20.0, 18.0


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation: its Unix time, text and colour."""

    time: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle of a picture."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Shown:
    """What a panel shows.

    Attributes:
        results: results of its queries by refId.
        marks: annotations of its dashboard.
        start: the beginning of the time range, as Unix time.
        end: its end.
        step: seconds between two points of a line.
    """

    results: Mapping[str, Sequence[Series]]
    marks: Sequence[Mark]
    start: float
    end: float
    step: float


def name(target: Mapping[str, Any], series: Series) -> str:
    """Return the name of a line, by its legend."""
    legend = target["legendFormat"]
    if legend == "__auto":
        return ", ".join(series.labels.values()) or "Value"
    for label in {*series.labels, *_labels(legend)}:
        legend = legend.replace(f"{{{{{label}}}}}", series.labels.get(label, ""))
    return str(legend)


def _labels(legend: str) -> list[str]:
    return [part.split("}}")[0] for part in legend.split("{{")[1:]]


def _named(panel: Mapping[str, Any], shows: Shown) -> list[tuple[str, Series]]:
    return [
        (name(target, series), series)
        for target in panel["targets"]
        for series in shows.results[target["refId"]]
    ]


def draw(svg: Svg, panel: Mapping[str, Any], place: Place, shows: Shown) -> None:
    """Draw a panel with its title."""
    svg.box(place.x, place.y, place.width, place.height, PANEL)
    svg.text(place.x + 10, place.y + 19, panel["title"], size=13, room=place.width, bold=True)
    inner = Place(place.x + 10, place.y + _TITLE, place.width - 20, place.height - _TITLE - 6)
    if not any(shows.results.values()):
        words = panel["fieldConfig"]["defaults"].get("noValue") or "No data"
        _centred(svg, inner, words, FAINT)
        return
    _KINDS[panel["type"]](svg, panel, inner, shows)


def _centred(svg: Svg, place: Place, words: str, fill: str, size: float = 14) -> None:
    middle = place.y + place.height / 2 + size / 3
    svg.text(place.x + place.width / 2, middle, words, fill=fill, size=size, anchor="middle")


def _stat(svg: Svg, panel: Mapping[str, Any], place: Place, shows: Shown) -> None:
    listed = _named(panel, shows)
    width = place.width / len(listed)
    for at, (title, series) in enumerate(listed):
        part = Place(place.x + at * width, place.y, width, place.height)
        words, fill = shown(series.value, of_field(panel, title), shows.end)
        if panel["options"]["graphMode"] == "area" and len(series.points) > 1:
            known = [value for _, value in series.points if not math.isnan(value)]
            most = max(known, default=1) or 1
            bottom = place.y + place.height
            for run in _runs(series.points, shows.step):
                line = [
                    (
                        part.x + width * (when - shows.start) / (shows.end - shows.start),
                        bottom - 0.45 * place.height * value / most,
                    )
                    for when, value in run
                ]
                svg.area([(line[0][0], bottom), *line, (line[-1][0], bottom)], fill, 0.15)
                svg.line(line, fill)
        if len(listed) > 1:
            svg.text(part.x + 4, part.y + 12, title, fill=FAINT, room=width)
        _centred(svg, part, words, fill, min(34, width / max(len(words), 1) * 1.5))


def _runs(points: Sequence[tuple[float, float]], step: float) -> list[list[tuple[float, float]]]:
    """Split points at gaps: a gap means unknown, and is not drawn."""
    found: list[list[tuple[float, float]]] = []
    last = -math.inf
    for when, value in points:
        if math.isnan(value):
            continue
        if when - last > 1.5 * step:
            found.append([])
        found[-1].append((when, value))
        last = when
    return found


def _timeseries(svg: Svg, panel: Mapping[str, Any], place: Place, shows: Shown) -> None:
    listed = _named(panel, shows)
    defaults = panel["fieldConfig"]["defaults"]
    keys = min(len(listed), max(2, int(place.height / _ROW / 3)))
    plot = Place(place.x + 52, place.y, place.width - 56, place.height - _AXIS - keys * 15 - 2)
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    lines = _stacked(listed) if stacked else [[(t, 0.0, v) for t, v in s.points] for _, s in listed]
    highest = max((top for line in lines for _, _, top in line if not math.isnan(top)), default=1)
    most = defaults.get("max") or highest * 1.05 or 1
    most = max(most, highest)

    def spot(when: float, value: float) -> tuple[float, float]:
        across = (when - shows.start) / (shows.end - shows.start)
        return plot.x + plot.width * across, plot.y + plot.height * (1 - value / most)

    for part in range(5):
        y = plot.y + plot.height * part / 4
        svg.line([(plot.x, y), (plot.x + plot.width, y)], LINE)
        text = number(most * (4 - part) / 4, defaults["unit"], None, shows.end)
        svg.text(plot.x - 5, y + 4, text, fill=FAINT, size=10, anchor="end")
    if defaults["custom"].get("thresholdsStyle", {}).get("mode") == "dashed":
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is not None and step["value"] <= most:
                ends = [spot(moment, step["value"]) for moment in (shows.start, shows.end)]
                svg.line(ends, colour(step["color"]), dashes="6 4")
    for at in reversed(range(len(listed))):
        title, _ = listed[at]
        fill = _line_colour(panel, title, at)
        bottoms = {when: bottom for when, bottom, _ in lines[at]}
        for run in _runs([(when, top) for when, _, top in lines[at]], shows.step):
            upper = [spot(*point) for point in run]
            lower = [spot(when, bottoms[when]) for when, _ in reversed(run)]
            svg.area([*upper, *lower], fill, 0.6 if stacked else 0.08)
            svg.line(upper, fill)
    _marks(svg, plot, shows)
    _times(svg, plot, shows)
    for at, (title, series) in enumerate(listed[:keys]):
        y = plot.y + plot.height + _AXIS + 12 + at * 15
        svg.box(place.x, y - 7, 10, 4, _line_colour(panel, title, at))
        text, _ = shown(series.value, {**of_field(panel, title), "mappings": []}, shows.end)
        more = f"  (+{len(listed) - keys} more)" if at == keys - 1 and keys < len(listed) else ""
        svg.text(place.x + 15, y, title + more, size=11, room=place.width - 90)
        svg.text(place.x + place.width, y, text, size=11, anchor="end")


def _stacked(listed: Sequence[tuple[str, Series]]) -> list[list[tuple[float, float, float]]]:
    heights: dict[float, float] = {}
    made = []
    for _, series in listed:
        line = []
        for when, value in series.points:
            bottom = heights.get(when, 0.0)
            if not math.isnan(value):
                heights[when] = bottom + value
            line.append((when, bottom, bottom + value))
        made.append(line)
    return made


def _line_colour(panel: Mapping[str, Any], title: str, at: int) -> str:
    own = of_field(panel, title)["color"]
    return colour(own["fixedColor"]) if own["mode"] == "fixed" else PALETTE[at % len(PALETTE)]


def _marks(svg: Svg, plot: Place, shows: Shown) -> None:
    for mark in shows.marks:
        x = plot.x + plot.width * (mark.time - shows.start) / (shows.end - shows.start)
        if plot.x <= x <= plot.x + plot.width:
            svg.line([(x, plot.y), (x, plot.y + plot.height)], colour(mark.colour), dashes="4 3")
            bottom = plot.y + plot.height
            svg.area([(x - 5, bottom + 7), (x + 5, bottom + 7), (x, bottom)], mark.colour, 1)


def _times(svg: Svg, plot: Place, shows: Shown) -> None:
    form = "%H:%M:%S" if shows.end - shows.start < 1800 else "%H:%M"
    if shows.end - shows.start > 86400:
        form = "%m-%d"
    for part in range(5):
        when = shows.start + (shows.end - shows.start) * part / 4
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        words = time.strftime(form, time.gmtime(when))
        x = plot.x + plot.width * part / 4
        svg.text(x, plot.y + plot.height + 16, words, fill=FAINT, size=10, anchor=anchor)


def _table(svg: Svg, panel: Mapping[str, Any], place: Place, shows: Shown) -> None:
    listed = rows(panel, shows.results)
    heads = titles(panel, listed)
    width = place.width / max(len(heads), 1)
    room = int(place.height / _ROW) - 1
    for at, title in enumerate(heads):
        config = of_field(panel, title)
        x = place.x + at * width
        svg.text(x + 4, place.y + 12, title, fill=colour("blue"), size=11, room=width - 6)
        for line, row in enumerate(listed[:room]):
            if title not in row:
                continue
            y = place.y + (line + 1) * _ROW
            words, fill = shown(row[title], config, shows.end)
            look = config["custom"]["cellOptions"]["type"]
            if look == "color-background" and fill not in ("none", colour("text")):
                svg.box(x, y - 2, width - 3, _ROW - 2, fill)
                fill = "#111217"
            elif look == "gauge" and isinstance(row[title], float):
                part = min(float(row[title]) / config["max"], 1)
                svg.box(x + 60, y + 1, (width - 68) * part, _ROW - 8, fill)
            elif look == "auto":
                fill = colour("text")
            if config.get("links"):
                fill = "#6e9fff"
            svg.text(
                x + 4,
                y + 12,
                words,
                fill=colour("text") if fill == "none" else fill,
                size=11,
                room=width - 6,
            )
    if len(listed) > room:
        svg.text(place.x, place.y + place.height, f"{len(listed) - room} more rows", size=10)


def _bargauge(svg: Svg, panel: Mapping[str, Any], place: Place, shows: Shown) -> None:
    listed = _named(panel, shows)
    most = panel["fieldConfig"]["defaults"].get("max")
    most = most or max(series.value for _, series in listed) or 1
    height = min(place.height / len(listed), 34)
    for at, (title, series) in enumerate(listed):
        y = place.y + at * height
        config = of_field(panel, title)
        words, _ = shown(series.value, config, shows.end)
        fill = colour(threshold(series.value, config))
        svg.text(place.x, y + height / 2 + 4, title, size=11, room=place.width * 0.38)
        left, width = place.x + place.width * 0.4, place.width * 0.45
        svg.box(left, y + 3, width, height - 6, LINE)
        svg.box(left, y + 3, width * min(max(series.value / most, 0), 1), height - 6, fill)
        svg.text(place.x + place.width, y + height / 2 + 4, words, fill=fill, anchor="end")


def _state_timeline(svg: Svg, panel: Mapping[str, Any], place: Place, shows: Shown) -> None:
    listed = _named(panel, shows)
    height = min((place.height - _AXIS) / len(listed), 26)
    plot = Place(place.x + 130, place.y, place.width - 134, height * len(listed))
    for at, (title, series) in enumerate(listed):
        y = place.y + at * height
        svg.text(place.x, y + height / 2 + 4, title, size=11, room=125)
        ends = [*series.points, (min(series.points[-1][0] + shows.step, shows.end), 0.0)]
        for (begin, value), (next_, _) in pairwise(ends):
            end = min(next_, begin + 1.5 * shows.step)
            _, fill = shown(value, of_field(panel, title), shows.end)
            scale = plot.width / (shows.end - shows.start)
            left = plot.x + scale * (begin - shows.start)
            svg.box(left, y + 2, scale * (end - begin) + 0.5, height - 4, fill, faint=0.8)
    _marks(svg, plot, shows)
    _times(svg, plot, shows)


_KINDS = {
    "stat": _stat,
    "timeseries": _timeseries,
    "table": _table,
    "bargauge": _bargauge,
    "state-timeline": _state_timeline,
}
