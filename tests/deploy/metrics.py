"""All metrics that podgpu can expose with its default names, and those that expressions name."""

import re
from collections.abc import Mapping, Set

from pipeline.component.registry import OWN_FAMILIES
from pipeline.exposition.renderer import INFO_FAMILIES
from pipeline.exposition.topology_families import TOPOLOGY_FAMILIES
from pipeline.exposition.usage_metrics import USAGE_FAMILIES
from pipeline.exposition.xid_families import XID_INFO
from pipeline.fields import CATALOGUE

GROUPS: Mapping[str, str] = {field.metric: field.group for field in CATALOGUE}
"""The group of fields for each metric about devices."""

OWN: Set[str] = {
    family.name + ending
    for family in OWN_FAMILIES
    for ending in (("_sum", "_count") if family.type == "summary" else ("",))
}
"""podgpu's metrics about itself."""

INFO: Set[str] = {name for name, _ in (*INFO_FAMILIES, *TOPOLOGY_FAMILIES, XID_INFO)} | {
    family.metric for family in USAGE_FAMILIES
}

SCRAPE: Set[str] = {"up"}
"""Series that Prometheus itself adds to a scrape."""

METRICS: Set[str] = GROUPS.keys() | OWN | INFO | SCRAPE

DEFAULT_METRICS: Set[str] = METRICS - {
    name for name, group in GROUPS.items() if group not in ("standard", "own")
}
"""The metrics that exist without a setting of fields."""

_NAME = re.compile(
    r"(?<![\w:])(?:DCGM_|podgpu[_:]|process_)[\w:]+|(?<![\w:.])up\b(?=\s*(?:[{=]|$))"
)


def named(expression: str) -> Set[str]:
    """Return the metrics that an expression or a text names, including recorded ones."""
    return set(_NAME.findall(expression))
