"""The dashboards in the chart, and their queries with variables filled in as Grafana does."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "deploy" / "chart" / "files" / "dashboards"
FILES: Mapping[str, Mapping[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}

_SPECIAL = r"([\\.+*?()|\[\]{}^$])"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    dashboard: str
    panel: str
    row: str
    name: str
    expr: str
    instant: bool

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.row}: {self.panel}: {self.name}"


def queries() -> Iterator[Query]:
    """Yield the queries of all dashboards."""
    for name, dashboard in FILES.items():
        row = ""
        for panel in dashboard["panels"]:
            if panel["type"] == "row":
                row = panel["title"]
            for target in panel.get("targets", ()):
                ref, expr, instant = target["refId"], target["expr"], target["instant"]
                yield Query(name, panel["title"], row, ref, expr, instant)


def variables(dashboard: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return a dashboard's variables with a Prometheus query, by name."""
    listed = dashboard["templating"]["list"]
    return {each["name"]: each for each in listed if each["type"] == "query"}


def numbers(dashboard: Mapping[str, Any]) -> Mapping[str, str]:
    """Return a dashboard's variables that are numbers, with their values."""
    listed = dashboard["templating"]["list"]
    return {each["name"]: each["query"] for each in listed if each["type"] == "textbox"}


@dataclass(frozen=True, slots=True)
class Range:
    """The time range of a dashboard.

    Attributes:
        shown: its length in seconds.
        step: seconds between two points of a line.
        window: the window of rates in seconds.
    """

    shown: int
    step: int
    window: int


def ranged(shown: int, scrape_interval: int, shortest: int = 0, points: int = 600) -> Range:
    """Return the range with the step and the window that Grafana chooses.

    Args:
        shown: its length in seconds.
        scrape_interval: that of the data source, in seconds.
        shortest: the shortest step of the panel, in seconds.
        points: how many points the panel has room for.
    """
    step = max(shown // points, scrape_interval, shortest)
    return Range(shown, step, max(step + scrape_interval, 4 * scrape_interval))


def filled(expr: str, values: Mapping[str, str], over: Range | int) -> str:
    """Replace variables by values as Grafana does.

    Args:
        expr: a query.
        values: the texts for the query, by variable.
        over: the time range, or the step of a range that is ten times as long.
    """
    if isinstance(over, int):
        over = Range(10 * over, over, over)
    known = {
        **values,
        "__interval": f"{over.step}s",
        "__interval_ms": str(1000 * over.step),
        "__range_s": str(over.shown),
        "__range": f"{over.shown}s",
        "__rate_interval": f"{over.window}s",
    }
    return re.sub(r"\$(\w+)", lambda found: known[found.group(1)], expr)


def several(values: list[str]) -> str:
    """Return the values of a variable with multiple selection, for a string in PromQL."""
    escaped = [re.sub(_SPECIAL, r"\\\\\1", value) for value in values]
    return f"({'|'.join(escaped)})" if len(escaped) > 1 else escaped[0]
