"""Dashboards as JSON: how a dashboard, its variables and its rows are written."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from deploy.dashboards.panels import DATASOURCE, Panel

Json: TypeAlias = dict[str, Any]

SCHEMA: Final = 42
"""The version of Grafana 12.2's form; Grafana brings an older one up to its own by itself."""

COLUMNS: Final = 24
"""Width of Grafana's grid."""


def dashboard(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Json],
    rows: Sequence[tuple[str, Sequence[Panel]]],
) -> Json:
    """Write a dashboard.

    Args:
        uid: stays the same for ever: links and a second import go by it.
        title: as shown in lists.
        description: what it is for.
        variables: the choices at its top, besides the data source.
        rows: titles, each with its panels, which flow from left to right.
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
        "time": {"from": "now-3h", "to": "now"},
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
        "annotations": {"list": []},
        "templating": {"list": [_DATASOURCES, *variables]},
        "panels": list(_placed(rows)),
    }


_DATASOURCES: Final[Json] = {
    "type": "datasource",
    "name": "datasource",
    "label": "Data source",
    "query": "prometheus",
    "current": {},
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
    """Write a variable whose values Prometheus knows.

    Args:
        name: the variable's name.
        label: what stands before it.
        query: `label_values(...)`.
        everything: the pattern that stands for all; given, several can be chosen too.
        hidden: it follows from others, and stands for all of its values.
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
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {},
        "options": [],
        "regex": "",
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
