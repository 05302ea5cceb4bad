"""Rows of a table panel: the results of its queries after its transformations."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.promql import Series

Row = dict[str, str | float]


def rows(panel: Mapping[str, Any], results: Mapping[str, Sequence[Series]]) -> list[Row]:
    """Return the rows of a table, by the titles of its columns in their order.

    Args:
        panel: a panel of the kind `table`.
        results: results of instant queries by refId.
    """
    single = len(panel["targets"]) == 1
    merged: dict[tuple[tuple[str, str], ...], Row] = {}
    for ref, found in results.items():
        value = "Value" if single else f"Value #{ref}"
        for series in found:
            key = tuple(sorted(series.labels.items()))
            merged.setdefault(key, dict(series.labels))[value] = series.value
    listed = list(merged.values())
    for each in panel["transformations"]:
        if each["id"] == "filterFieldsByName":
            kept = each["options"]["include"]["names"]
            listed = [{name: row[name] for name in kept if name in row} for row in listed]
        elif each["id"] == "organize":
            place, title = each["options"]["indexByName"], each["options"]["renameByName"]
            listed = [
                {title[name]: row[name] for name in sorted(row, key=place.__getitem__)}
                for row in listed
            ]
    for by in panel["options"].get("sortBy", ()):
        name = by["displayName"]
        listed.sort(key=lambda row: float(row.get(name, "-inf")), reverse=by["desc"])
    return listed


def titles(panel: Mapping[str, Any], listed: Sequence[Row]) -> list[str]:
    """Return the titles of the columns that have a value in any row, in their order."""
    options = panel["transformations"][-1]["options"]
    order = sorted(options["indexByName"], key=options["indexByName"].__getitem__)
    named = [options["renameByName"][name] for name in order]
    return [title for title in named if any(title in row for row in listed)]
