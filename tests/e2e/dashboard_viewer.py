"""Asks a Prometheus what a dashboard shows, as Grafana does."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.deploy.dashboards import filled, numbers, ranged, several, variables
from tests.deploy.drawing.panels import Mark, Shown
from tests.e2e.promql import QueriedPrometheus, Series

_SECONDS = {"s": 1, "m": 60, "h": 3600}


class Viewer:
    """A dashboard that shows a time range.

    Args:
        server: the Prometheus.
        dashboard: the dashboard's JSON.
        end: the end of the time range, as Unix time.
        seconds: its length.
        scrape_interval: seconds between two scrapes.
        choices: values of variables that are not the default.
    """

    def __init__(
        self,
        server: QueriedPrometheus,
        dashboard: Mapping[str, Any],
        *,
        end: float,
        seconds: int,
        scrape_interval: int = 1,
        choices: Mapping[str, str] | None = None,
    ) -> None:
        self._server = server
        self.dashboard = dashboard
        self._end, self._seconds, self._scrape = end, seconds, scrape_interval
        self.values = self._chosen(choices or {})
        self.marks = [mark for each in self._annotations() for mark in self._events(*each)]

    def _chosen(self, choices: Mapping[str, str]) -> Mapping[str, str]:
        """Choose values of variables: the first one, or all."""
        values = dict(numbers(self.dashboard))
        over = ranged(self._seconds, self._scrape)
        for name, about in variables(self.dashboard).items():
            definition = filled(about["definition"], values, over)
            words = definition.removeprefix("label_values(").removesuffix(")")
            metric, label = words.rsplit(", ", 1)
            listed: list[str] = self._server.api(f"label/{label}/values", **{"match[]": metric})
            if name in choices:
                values[name] = choices[name]
            elif about["includeAll"]:
                values[name] = about.get("allValue") or several(listed or [""])
            else:
                values[name] = listed[0] if listed else ""
        return values

    def panels(self) -> Iterator[Mapping[str, Any]]:
        """Yield the panels, without rows."""
        yield from (each for each in self.dashboard["panels"] if each["type"] != "row")

    def shows(self, panel: Mapping[str, Any]) -> Shown:
        """Return what a panel shows."""
        shortest = _seconds(panel.get("interval", "0s"))
        over = ranged(self._seconds, self._scrape, shortest, 60 * panel["gridPos"]["w"])
        results = {}
        for target in panel["targets"]:
            expr = filled(target["expr"], self.values, over)
            if target["instant"]:
                results[target["refId"]] = self._server.query(expr, self._end)
            else:
                results[target["refId"]] = self._range(expr, over.step)
        start = self._end - self._seconds
        return Shown(results, self.marks, start, self._end, over.step)

    def _range(self, expr: str, step: int) -> list[Series]:
        return self._server.range(expr, self._end - self._seconds, self._end, step)

    def _annotations(self) -> Iterator[tuple[Mapping[str, Any], list[Series]]]:
        over = ranged(self._seconds, self._scrape, points=100)
        for each in self.dashboard["annotations"]["list"]:
            yield each, self._range(filled(each["expr"], self.values, over), over.step)

    def _events(self, about: Mapping[str, Any], found: list[Series]) -> Iterator[Mark]:
        """Yield a mark for each time of each series."""
        for series in found:
            label = _labels(series.labels)
            title = re.sub(r"\{\{(\w+)\}\}", label, about["titleFormat"])
            more = re.sub(r"\{\{(\w+)\}\}", label, about["textFormat"])
            for when in sorted({value for _, value in series.points}):
                # As in HTML, blanks at the end of a text are not shown.
                text = f"{title.rstrip()}; {more.rstrip()}"
                yield Mark(when / 1000, text, about["iconColor"])


def _labels(labels: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    return lambda found: labels.get(found[1], "")


def _seconds(text: str) -> int:
    return int(text[:-1]) * _SECONDS[text[-1]]
