"""The part of the chart's values schema that is podgpu's own configuration.

It comes from the same place as `podgpu schema`, with three differences: a component may lack its
kind, since the values lie over a preset; it may be null, which takes it out of the preset; and
patterns are such as Go knows, which is what helm checks with.
"""

import json
from typing import Any

import yaml

from config.json_schema import json_schema
from pipeline.component.registry import RegisteredKinds

_DURATION = "^([0-9][0-9_]*([.][0-9]+)?(ms|[dhms]))+$"


def completed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the values schema with the part that is made put in."""
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
    # What dcgm-exporter's chart has there is let through, for the chart to say what to do with it.
    foreign = ("enabled", "create", "name", "key", "mountPath", "data")
    properties |= {key: {} for key in foreign}
    config = {"type": "object", "properties": properties, "additionalProperties": False}
    whole = {**schema, "properties": {**schema["properties"], "config": config}}
    return {**whole, "$defs": made["$defs"]}


def dumped(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def defaults(values: str) -> str:
    """Return what a values.yaml says, without a word: for the chart, which can't read that file."""
    head = "# Made from values.yaml, which the chart's templates can't read.\n"
    return head + yaml.safe_dump(yaml.safe_load(values), sort_keys=False)
