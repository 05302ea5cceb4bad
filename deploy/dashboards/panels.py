"""Panels of Grafana's built-in kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Kind = Literal["timeseries", "stat", "table", "bargauge", "state-timeline"]


@dataclass(frozen=True, slots=True)
class Target:
    """A query.

    Attributes:
        expr: the PromQL expression.
        legend: the name of a line, with labels as `{{gpu}}`.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel, without the properties that all panels share.

    Attributes:
        kind: Grafana's name of the kind.
        title: the title.
        description: the meaning, for users who do not know the metric.
        targets: the queries. Lines use range queries, all others instant queries; a table joins
            several.
        unit: Grafana's name of the unit.
        width: in columns, of 24.
        height: in rows.
        most: the highest possible value; None if there is no limit.
        stacked: whether lines are stacked.
        steps: colours by lowest value, ascending; the first has None.
        columns: of a table, in order: titles by the name of the label or the value. The name of a
            value is `Value` for one query, otherwise `Value #A` and so on.
        units: units of a table's values, by title.
        words: texts and colours for values.
        none: the text if there is no data.
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
        """Return the panel as JSON, without its id and position."""
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
                # Missing readings are shown as a gap.
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
            # The scrape decides which labels there are: keep only the columns of the panel.
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
