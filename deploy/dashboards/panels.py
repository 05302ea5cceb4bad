"""Panels of the kinds that every Grafana has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Kind = Literal["timeseries", "stat", "table", "bargauge", "state-timeline"]


@dataclass(frozen=True, slots=True)
class Target:
    """A query.

    Attributes:
        expr: in PromQL.
        legend: what a line is called, with labels as `{{gpu}}`.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel, in what is its own.

    Attributes:
        kind: Grafana's name of the kind.
        title: what is shown.
        description: what it means, for people who don't know the metric.
        targets: the queries. Lines are asked over time, all else as of now; a table puts several
            side by side.
        unit: Grafana's name of the unit.
        width: of 24 columns.
        height: in rows.
        most: the highest value that there can be; none where there is no such bound.
        stacked: whether lines are added up.
        steps: colours by the value from which they hold, rising; the first has no bound.
        columns: of a table, in order: titles by the name of the label or the value. A value's name
            is `Value` where there is one query, else `Value #A` and so on.
        units: of a table's values, by title.
        words: what stands for a value.
        none: what stands where nothing is known.
    """

    kind: Kind
    title: str
    description: str
    targets: Sequence[Target]
    unit: str = "short"
    width: int = 12
    height: int = 8
    most: float | None = None
    stacked: bool = False
    steps: Sequence[tuple[float | None, str]] = ((None, "text"),)
    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    none: str = "unknown"

    def json(self) -> dict[str, Any]:
        """Write it, without its number and place."""
        made: dict[str, Any] = {
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "targets": [self._target(at, target) for at, target in enumerate(self.targets)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": self._overrides()},
            "options": _OPTIONS[self.kind],
        }
        if self.kind == "table":
            made["transformations"] = self._transformations()
        return made

    def _target(self, at: int, target: Target) -> dict[str, Any]:
        now = self.kind in ("stat", "table", "bargauge")
        return {
            "refId": chr(ord("A") + at),
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": target.expr,
            "legendFormat": target.legend or "__auto",
            "format": "table" if self.kind == "table" else "time_series",
            "instant": now,
            "range": not now,
        }

    def _defaults(self) -> dict[str, Any]:
        steps = [{"value": value, "color": colour} for value, colour in self.steps]
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "noValue": self.none,
            "color": {"mode": "palette-classic" if self.kind == "timeseries" else "thresholds"},
            "thresholds": {"mode": "absolute", "steps": steps},
            "custom": self._custom(),
            "mappings": [
                {
                    "type": "value",
                    "options": {
                        value: {"text": word, "color": colour, "index": at}
                        for at, (value, (word, colour)) in enumerate(self.words.items())
                    },
                }
            ]
            if self.words
            else [],
        }
        if self.kind in ("timeseries", "bargauge"):
            defaults["min"] = 0
        if self.most is not None:
            defaults["max"] = self.most
        return defaults

    def _custom(self) -> dict[str, Any]:
        if self.kind == "timeseries":
            return {
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": 60 if self.stacked else 8,
                "showPoints": "never",
                # What wasn't read is a gap.
                "spanNulls": False,
                "stacking": {"mode": "normal" if self.stacked else "none", "group": "A"},
            }
        if self.kind == "table":
            return {"align": "auto", "filterable": True, "cellOptions": {"type": "auto"}}
        if self.kind == "state-timeline":
            return {"lineWidth": 0, "fillOpacity": 80, "spanNulls": False}
        return {}

    def _overrides(self) -> list[dict[str, Any]]:
        return [
            {
                "matcher": {"id": "byName", "options": title},
                "properties": [{"id": "unit", "value": unit}],
            }
            for title, unit in self.units.items()
        ]

    def _transformations(self) -> list[dict[str, Any]]:
        return [
            *([{"id": "merge", "options": {}}] if len(self.targets) > 1 else []),
            # Columns that aren't asked for go: which labels there are, the scrape decides.
            {"id": "filterFieldsByName", "options": {"include": {"names": list(self.columns)}}},
            {
                "id": "organize",
                "options": {
                    "indexByName": {name: at for at, name in enumerate(self.columns)},
                    "renameByName": dict(self.columns),
                },
            },
        ]


_OPTIONS: Final[Mapping[Kind, Mapping[str, Any]]] = {
    "timeseries": {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
    "bargauge": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "displayMode": "basic",
        "orientation": "horizontal",
        "showUnfilled": True,
        "valueMode": "color",
    },
    "state-timeline": {
        "mergeValues": True,
        "showValue": "never",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
    },
}
