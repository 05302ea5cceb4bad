"""The README of the chart, generated from values.yaml, its comments and its schema."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_README = """\
# podgpu

{description}. This page is generated from `Chart.yaml` and
`values.yaml`.

```
helm install podgpu deploy/chart -n podgpu --create-namespace --set image.repository=REGISTRY/podgpu
helm test podgpu -n podgpu
```

There is no published image: [build it and push it](../../docs/install.md) first. Kubernetes must be
{kubernetes} or newer.

- [Install](../../docs/install.md): other distributions, how the driver gets into the pods, upgrade.
- [Values](../../docs/chart.md): what the values do together, permissions, updates, `helm test`.
- [Coming from dcgm-exporter](../../docs/migrating.md): its values files work unchanged.

## Values

{table}"""

_KEY = re.compile(r"^( *)([A-Za-z]+):")


@dataclass(frozen=True, slots=True)
class Value:
    """One value, not a group of values."""

    path: str
    default: Any
    text: str
    """The comment above it; empty if there is none."""


def values(text: str, schema: dict[str, Any]) -> Iterator[Value]:
    """Yield the values of a values.yaml; the schema shows which keys are groups of values."""
    parsed = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        found = _KEY.match(line)
        if found:
            path[len(found.group(1)) // 2 :] = [found.group(2)]
            above = all(heading(schema, path[:depth]) for depth in range(1, len(path)))
            if above and not heading(schema, path):
                yield Value(".".join(path), _at(parsed, path), " ".join(comment))
        comment = []


def heading(schema: dict[str, Any], path: list[str]) -> bool:
    """Return whether a mapping is a group whose values have a row each."""
    for key in path:
        schema = schema["properties"][key]
    return schema.get("type") == "object" and "properties" in schema and path != ["config"]


def _at(parsed: Any, path: list[str]) -> Any:
    for key in path:
        parsed = parsed[key]
    return parsed


def table(text: str, schema: dict[str, Any]) -> str:
    """Return the table with a row for each value."""
    rows = ["| Value | Default | |", "| --- | --- | --- |"]
    for value in values(text, schema):
        default = json.dumps(value.default, ensure_ascii=False)
        rows.append(f"| `{value.path}` | `{_cell(default)}` | {_cell(value.text)} |")
    return "\n".join(rows) + "\n"


def readme(text: str, schema: dict[str, Any], chart: dict[str, str]) -> str:
    """Return the README of the chart.

    Args:
        text: the content of values.yaml.
        schema: the schema of the values.
        chart: the content of Chart.yaml.
    """
    oldest = re.sub(r"^>=(\d+\.\d+)\..*", r"\1", chart["kubeVersion"])
    return _README.format(
        description=chart["description"], kubernetes=oldest, table=table(text, schema)
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
