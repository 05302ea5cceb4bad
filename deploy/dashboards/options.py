"""The options of each kind of panel, the same for all panels of the kind."""

from collections.abc import Mapping
from typing import Any, Final

_LAST: Final = {"calcs": ["lastNotNull"], "fields": "", "values": False}

OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
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
        "reduceOptions": _LAST,
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    },
    "table": {"showHeader": True, "cellHeight": "sm", "frameIndex": 0},
    "bargauge": {
        "reduceOptions": _LAST,
        "displayMode": "basic",
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "maxVizHeight": 300,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    },
    "state-timeline": {
        "mergeValues": True,
        "showValue": "never",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    },
}
