"""The parts of the chart's values schema for podgpu's configuration and for the alerts.

The first is generated as by `podgpu schema`, with three differences: a component may lack its kind,
because values are merged into a preset; it may be null, which removes it from the preset; and
patterns have Go's syntax, with which helm checks them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

from config.json_schema import json_schema
from pipeline.component.registry import RegisteredKinds
from tests.deploy.places import CHART

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
    alerts = schema["properties"]["prometheusRule"]
    changed = alert_rules((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    alerts = {**alerts, "properties": {**alerts["properties"], **changed}}
    parts = {"config": config, "prometheusRule": alerts}
    return {**schema, "properties": {**schema["properties"], **parts}, "$defs": made["$defs"]}


_FOR = "^([0-9]+(ms|[smhdwy]))+$"
_LABEL = "^[a-zA-Z_][a-zA-Z0-9_]*$"
_TEXTS = {
    "type": "object",
    "patternProperties": {_LABEL: {"type": "string"}},
    "additionalProperties": False,
}


def alert_rules(text: str) -> dict[str, Any]:
    """Return the schema of the value that changes single alerts, and the list of their names.

    Only rules with `# threshold` in their expression have a threshold.

    Args:
        text: the rule file.
    """
    groups = yaml.safe_load(text)["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    setting = {
        "enabled": {"type": "boolean"},
        "for": {"type": "string", "pattern": _FOR},
        "severity": {"type": "string", "minLength": 1},
        "labels": _TEXTS,
        "annotations": _TEXTS,
    }
    limited = {**setting, "threshold": {"type": "number", "minimum": 0}}
    with_limit = [rule["alert"] for rule in rules if re.search(" # threshold$", rule["expr"], re.M)]
    names = [rule["alert"] for rule in rules]
    without = [name for name in names if name not in with_limit]

    def allowed(properties: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "additionalProperties": False}

    return {
        "rules": {
            "type": "object",
            "patternProperties": {
                _one_of(with_limit): allowed(limited),
                _one_of(without): allowed(setting),
            },
            "additionalProperties": False,
        },
        "disabled": {"type": "array", "items": {"enum": names}},
        "additionalRuleLabels": _TEXTS,
        "additionalRuleAnnotations": _TEXTS,
    }


def _one_of(names: Iterable[str]) -> str:
    return f"^({'|'.join(names)})$"


def dumped(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def defaults(values: str) -> str:
    """Return a values.yaml without comments, for the templates, which cannot read that file."""
    head = "# Made from values.yaml, which the chart's templates can't read.\n"
    return head + yaml.safe_dump(yaml.safe_load(values), sort_keys=False)
