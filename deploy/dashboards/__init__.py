"""Grafana dashboards, generated from short descriptions.

A panel is about fifty lines of JSON, mostly the same for all panels. `python -m deploy.dashboards`
writes the JSON files of the chart; a test checks that they are up to date.
"""

from collections.abc import Mapping

from deploy.dashboards.fleet import FLEET
from deploy.dashboards.node import NODE
from deploy.dashboards.pods import PODS
from deploy.dashboards.usage import USAGE
from deploy.dashboards.writing import Json

DASHBOARDS: Mapping[str, Json] = {"fleet": FLEET, "node": NODE, "pods": PODS, "usage": USAGE}
"""Dashboards by file name without suffix."""
