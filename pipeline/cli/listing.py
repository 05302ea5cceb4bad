"""Commands that only tell: `check`, `schema`, `kinds`, `fields`."""

import argparse
from collections.abc import Sequence

import orjson

from config.describe import describe
from config.jsonschema import json_schema
from pipeline.cli.locating import located
from pipeline.fields import CATALOGUE
from pipeline.registry import ENTRIES, RegisteredKinds

_FIELD_COLUMNS = ("name", "unit", "metric", "metric unit", "type", "tier", "call", "meaning")


def check(arguments: argparse.Namespace) -> int:
    """`podgpu check`: status 0 if the configuration can be taken."""
    config, path = located(arguments.config)
    sources, sinks = ", ".join(config.sources), ", ".join(config.sinks)
    print(f"{path or 'built-in'}: good: sources {sources}; sinks {sinks}")
    return 0


def schema(_: argparse.Namespace) -> int:
    """`podgpu schema`: JSON Schema, for editors."""
    print(orjson.dumps(json_schema(RegisteredKinds()), option=orjson.OPT_INDENT_2).decode())
    return 0


def kinds(_: argparse.Namespace) -> int:
    """`podgpu kinds`: each kind, what it is for, and its options."""
    for (role, kind), entry in ENTRIES.items():
        print(f"{role} {kind}: {entry.summary}")
        for option in describe(RegisteredKinds().options(role, kind)):
            default = f" (default {option.default})" if option.default else ""
            print(f"    {option.name}: {option.type}{default}\n        {option.doc}")
    return 0


def fields(arguments: argparse.Namespace) -> int:
    """`podgpu fields`: the catalogue."""
    rows = [
        (f.name, f.unit, f.metric, f.metric_unit, f.type, f.tier.value, f.call, f.help)
        for f in CATALOGUE
    ]
    if arguments.format == "json":
        table = [dict(zip(_FIELD_COLUMNS, row, strict=True)) for row in rows]
        print(orjson.dumps(table, option=orjson.OPT_INDENT_2).decode())
    elif arguments.format == "markdown":
        for line in (_FIELD_COLUMNS, ("---",) * len(_FIELD_COLUMNS), *rows):
            print(f"| {' | '.join(line)} |")
    else:
        _print_table([_FIELD_COLUMNS, *rows])
    return 0


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
