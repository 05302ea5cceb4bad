"""Generates the JSON of dashboards, their variables and rows."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from deploy.dashboards.panels import DATASOURCE, Panel

Json: TypeAlias = dict[str, Any]

SCHEMA: Final = 42
"""Schema version of Grafana 12.2; newer Grafanas migrate it."""

COLUMNS: Final = 24
"""Width of Grafana's grid."""


def dashboard(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Json],
    rows: Sequence[tuple[str, Sequence[Panel]]],
    *,
    annotations: Sequence[Json] = (),
    shown: str = "now-3h",
) -> Json:
    """Return a dashboard.

    Args:
        uid: must never change: links and later imports refer to it.
        title: the title in lists.
        description: the purpose.
        variables: the variables at the top, in addition to the data source.
        rows: titles and panels, which are placed from left to right.
        annotations: events that are marked on the time line.
        shown: the beginning of the time range when the dashboard is opened.
    """
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["podgpu", "gpu"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": shown, "to": "now"},
        "timezone": "",
        "links": [
            {
                "type": "dashboards",
                "title": "podgpu",
                "tags": ["podgpu"],
                "asDropdown": False,
                "includeVars": False,
                "keepTime": True,
                "targetBlank": False,
                "url": "",
                "icon": "external link",
                "tooltip": "",
            }
        ],
        "annotations": {"list": list(annotations)},
        "templating": {"list": [_DATASOURCES, *variables]},
        "panels": list(_placed(rows)),
    }


_NOTHING: Final[Json] = {"selected": False, "text": "", "value": ""}
"""No value yet: Grafana chooses the first one."""

_DATASOURCES: Final[Json] = {
    "type": "datasource",
    "name": "datasource",
    "label": "Data source",
    "query": "prometheus",
    "current": _NOTHING,
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "refresh": 1,
    "regex": "",
}


def choice(
    name: str, label: str, query: str, *, everything: str = "", hidden: bool = False
) -> Json:
    """Return a variable with values from Prometheus.

    Args:
        name: the variable's name.
        label: its label.
        query: `label_values(...)`.
        everything: the pattern that means all; if set, several values can be selected.
        hidden: the variable is derived from others, and has all of its values selected.
    """
    several = bool(everything) or hidden
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 7,
        "hide": 2 if hidden else 0,
        "multi": several,
        "includeAll": several,
        **({"allValue": everything} if everything else {}),
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}
        if several
        else _NOTHING,
        "options": [],
        "regex": "",
    }


def number(name: str, label: str, value: str) -> Json:
    """Return a variable that is a number, which a user can change.

    Args:
        name: the variable's name.
        label: its label.
        value: the number when the dashboard is opened.
    """
    only = {"selected": True, "text": value, "value": value}
    return {
        "type": "textbox",
        "name": name,
        "label": label,
        "query": value,
        "current": only,
        "options": [only],
        "hide": 0,
    }


def events(name: str, expr: str, *, title: str, text: str, tags: str, colour: str) -> Json:
    """Return marks on the time line: the values of a query are their times, in milliseconds.

    Args:
        name: the name of the switch at the top of the dashboard.
        expr: the query. Equal times of successive points of a series are one mark.
        title: the first line of the mark's text, with labels as `{{gpu}}`.
        text: the second line.
        tags: labels whose values are tags of the mark, separated by commas.
        colour: the colour of the mark.
    """
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "useValueForTime": True,
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": tags,
    }


def _placed(rows: Sequence[tuple[str, Sequence[Panel]]]) -> Iterator[Json]:
    number = top = 0
    for title, panels in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
            "panels": [],
        }
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                left, top, height = 0, top + height, 0
            number += 1
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield {"id": number, "gridPos": place, **panel.json()}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def text(made: Json) -> str:
    """Return a dashboard as the text of its file."""
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"
