"""Grafana's dashboards, made from a short description of each.

Written out, a panel is some fifty lines of JSON, most of them the same for all. The JSON in the
chart is made by `python -m deploy.dashboards`; a test holds it against this.
"""

from collections.abc import Mapping

from deploy.dashboards.fleet import FLEET
from deploy.dashboards.node import NODE
from deploy.dashboards.pods import PODS
from deploy.dashboards.writing import Json

DASHBOARDS: Mapping[str, Json] = {"fleet": FLEET, "node": NODE, "pods": PODS}
"""By the name of the file, without its ending."""
