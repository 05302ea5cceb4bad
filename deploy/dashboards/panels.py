"""Panels of Grafana's built-in kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from deploy.dashboards.options import OPTIONS

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Kind = Literal["timeseries", "stat", "table", "bargauge", "state-timeline"]
Steps = Sequence[tuple[float | None, str]]
Words = Mapping[str, tuple[str, str]]

PLAIN: Final[Steps] = ((None, "text"),)
GOOD_OR_BAD: Final[Steps] = ((None, "green"), (1, "red"))


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
class Link:
    """A link to another dashboard, with the data source and the time range of this one.

    Attributes:
        title: the text of the link.
        uid: the dashboard.
        values: values of its variables; `${__value.raw}` is the value of the cell, and
            `${__data.fields.Node}` that of another column of the row.
    """

    title: str
    uid: str
    values: Mapping[str, str]

    def json(self) -> dict[str, Any]:
        """Return the link as JSON."""
        chosen = "".join(f"&var-{name}={value}" for name, value in self.values.items())
        return {
            "title": self.title,
            "url": f"/d/{self.uid}?${{datasource:queryparam}}{chosen}&${{__url_time_range}}",
            "targetBlank": False,
        }


@dataclass(frozen=True, slots=True)
class Cell:
    """How a column of a table is shown.

    Attributes:
        unit: Grafana's name of the unit.
        steps: colours by lowest value, as for a panel.
        look: where the colour is: in the text, in the whole cell, or in a bar up to `most`.
        most: the highest value of the bar.
        words: texts and colours for values.
        link: what a click opens.
        decimals: number of decimals; None for Grafana's choice.
    """

    unit: str = ""
    steps: Steps = ()
    look: Literal["", "text", "background", "gauge"] = ""
    most: float | None = None
    words: Words = field(default_factory=dict)
    link: Link | None = None
    decimals: int | None = None

    def properties(self) -> list[dict[str, Any]]:
        """Return the properties of the column's override."""
        looks: dict[str, dict[str, str]] = {
            "text": {"type": "color-text"},
            "background": {"type": "color-background", "mode": "basic"},
            "gauge": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
        }
        found: dict[str, Any] = {}
        if self.unit:
            found["unit"] = self.unit
        if self.decimals is not None:
            found["decimals"] = self.decimals
        if self.steps:
            found["color"] = {"mode": "thresholds"}
            found["thresholds"] = _thresholds(self.steps)
        if self.look:
            found["custom.cellOptions"] = looks[self.look]
        if self.most is not None:
            found |= {"min": 0, "max": self.most}
        if self.words:
            found["mappings"] = [_value_mapping(self.words)]
        if self.link is not None:
            found["links"] = [self.link.json()]
        return [{"id": name, "value": value} for name, value in found.items()]


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel, without the properties that all panels share.

    Attributes:
        kind: Grafana's name of the kind.
        title: the title.
        description: the meaning, for users who do not know the metric.
        targets: the queries. Lines, and boxes with a trend, use range queries, all others instant
            queries; a table joins several.
        unit: Grafana's name of the unit.
        width: in columns, of 24.
        height: in rows.
        most: the highest possible value; None if there is no limit.
        stacked: whether lines are stacked.
        steps: colours by lowest value, ascending; the first has None.
        limits: whether the steps are drawn as lines.
        columns: of a table, in order: titles by the name of the label or the value. The name of a
            value is `Value` for one query, otherwise `Value #A` and so on.
        cells: how columns are shown, by title.
        colours: colours of lines, by their names.
        words: texts and colours for values.
        none: the text if there is no data.
        trend: whether a box has a line of its past values behind the number.
        link: what a click on a value opens.
        interval: the shortest time between two points, which is also that of rates.
        sort: the title of the column by which a table is sorted, largest first.
        decimals: number of decimals; None for Grafana's choice.
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
    steps: Steps = PLAIN
    limits: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, Cell] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)
    words: Words = field(default_factory=dict)
    none: str = "unknown"
    trend: bool = False
    link: Link | None = None
    interval: str = ""
    sort: str = ""
    decimals: int | None = None

    def json(self) -> dict[str, Any]:
        """Return the panel as JSON, without its id and position."""
        options = dict(OPTIONS[self.kind])
        if self.trend:
            # The last point, also if it is unknown: not the last one that was known.
            options["graphMode"] = "area"
            options["reduceOptions"] = {**options["reduceOptions"], "calcs": ["last"]}
        if self.sort:
            options["sortBy"] = [{"displayName": self.sort, "desc": True}]
        made: dict[str, Any] = {
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "targets": [self._target(at, target) for at, target in enumerate(self.targets)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": self._overrides()},
            "options": options,
        }
        if self.interval:
            made["interval"] = self.interval
        if self.kind == "table":
            made["transformations"] = self._transformations()
        return made

    def _target(self, at: int, target: Target) -> dict[str, Any]:
        now = self.kind in ("stat", "table", "bargauge") and not self.trend
        return {
            "refId": chr(ord("A") + at),
            "datasource": DATASOURCE,
            "editorMode": "code",
            # A point without a value ends the trend, so that an old value is not shown as present.
            "expr": f"({target.expr}) or vector(NaN)" if self.trend else target.expr,
            "legendFormat": target.legend or "__auto",
            "format": "table" if self.kind == "table" else "time_series",
            "instant": now,
            "range": not now,
        }

    def _defaults(self) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "noValue": self.none,
            "color": {"mode": "palette-classic" if self.kind == "timeseries" else "thresholds"},
            "thresholds": _thresholds(self.steps),
            "custom": self._custom(),
            "mappings": [_value_mapping(self.words)] if self.words else [],
        }
        if self.trend:
            unknown = {"text": self.none, "color": "text", "index": 0}
            defaults["mappings"] = [
                *defaults["mappings"],
                {"type": "special", "options": {"match": "nan", "result": unknown}},
            ]
        if self.kind in ("timeseries", "bargauge"):
            defaults["min"] = 0
        if self.most is not None:
            defaults["max"] = self.most
        if self.decimals is not None:
            defaults["decimals"] = self.decimals
        if self.link is not None:
            defaults["links"] = [self.link.json()]
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
                "thresholdsStyle": {"mode": "dashed" if self.limits else "off"},
            }
        if self.kind == "table":
            return {
                "align": "auto",
                "cellOptions": {"type": "auto"},
                "filterable": True,
                "inspect": False,
            }
        if self.kind == "state-timeline":
            return {"lineWidth": 0, "fillOpacity": 80, "spanNulls": False}
        return {}

    def _overrides(self) -> list[dict[str, Any]]:
        found = {title: cell.properties() for title, cell in self.cells.items()}
        for name, colour in self.colours.items():
            fixed = {"mode": "fixed", "fixedColor": colour}
            found[name] = [{"id": "color", "value": fixed}]
        return [
            {"matcher": {"id": "byName", "options": name}, "properties": properties}
            for name, properties in found.items()
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


def _thresholds(steps: Steps) -> dict[str, Any]:
    listed = [{"value": value, "color": colour} for value, colour in steps]
    return {"mode": "absolute", "steps": listed}


def _value_mapping(words: Words) -> dict[str, Any]:
    return {
        "type": "value",
        "options": {
            value: {"text": word, "color": colour, "index": at}
            for at, (value, (word, colour)) in enumerate(words.items())
        },
    }
