"""The part of the chart's values schema for podgpu's configuration.

It is generated as by `podgpu schema`, with three differences: a component may lack its kind,
because values are merged into a preset; it may be null, which removes it from the preset; and
patterns have Go's syntax, with which helm checks them.
"""

import json
from typing import Any

import yaml

from config.json_schema import json_schema
from pipeline.component.registry import RegisteredKinds

_DURATION = "^([0-9][0-9_]*([.][0-9]+)?(ms|[dhms]))+$"


def completed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the values schema with the generated part in it."""
    made: Any = json_schema(RegisteredKinds())
    made["$defs"]["duration"]["anyOf"][0]["pattern"] = _DURATION
    for role in ("source", "sink"):
        made["$defs"][role].pop("required")
    properties = made["properties"]
    for roles in ("sources", "sinks"):
        properties[roles].pop("minProperties")
        component = properties[roles]["additionalProperties"]
        properties[roles]["additionalProperties"] = {
            "type": ["object", "null"],
            "if": {"type": "object"},
            "then": component,
        }
    # Keys of dcgm-exporter's chart are accepted here; the chart reports what to do with them.
    dcgm_exporter_keys = ("enabled", "create", "name", "key", "mountPath", "data")
    properties |= {key: {} for key in dcgm_exporter_keys}
    config = {"type": "object", "properties": properties, "additionalProperties": False}
    whole = {**schema, "properties": {**schema["properties"], "config": config}}
    return {**whole, "$defs": made["$defs"]}


def dumped(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def defaults(values: str) -> str:
    """Return a values.yaml without comments, for the templates, which cannot read that file."""
    head = "# Made from values.yaml, which the chart's templates can't read.\n"
    return head + yaml.safe_dump(yaml.safe_load(values), sort_keys=False)
