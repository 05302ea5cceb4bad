"""The parts that every dashboard and every panel must have."""

import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from deploy.dashboards import DASHBOARDS
from deploy.dashboards.recording import RULES, rules_text
from deploy.dashboards.writing import text
from pipeline.fields import called
from tests.deploy.dashboards import FILES, FOLDER, Query, numbers, queries, variables
from tests.deploy.metrics import DEFAULT_METRICS, GROUPS, METRICS, named

PAGE = (Path(__file__).parents[2] / "docs" / "dashboards.md").read_text()
UIDS = {name: f"podgpu-{name}" for name in ("fleet", "node", "pods", "usage")}
CORE = {"row", "timeseries", "stat", "table", "bargauge", "state-timeline"}
"""Panel types that are built into Grafana."""

UNITS = {
    *(
        "short",
        "percent",
        "percentunit",
        "watt",
        "kwatth",
        "celsius",
        "hertz",
        "mbytes",
        "bytes",
        "locale",
    ),
    *("Bps", "cps", "s", "dateTimeFromNow"),
}
IN_MIB = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL")

RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"]}

PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, dashboard in FILES.items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]
QUERIES = [pytest.param(query, id=str(query)) for query in queries()]

each_file = pytest.mark.parametrize("name", list(FILES))
each_panel = pytest.mark.parametrize("panel", PANELS)
each_query = pytest.mark.parametrize("query", QUERIES)


def test_the_files_are_the_generated_dashboards() -> None:
    assert FILES.keys() == DASHBOARDS.keys()
    for name, dashboard in DASHBOARDS.items():
        existing = (FOLDER / f"{name}.json").read_text()
        assert existing == text(dashboard), "`python -m deploy.dashboards` generates them"


def test_the_recording_rules_are_the_generated_ones() -> None:
    existing = (FOLDER.parent / "recording-rules.yaml").read_text()
    assert existing == rules_text(), "`python -m deploy.dashboards` generates them"


@each_file
def test_a_dashboard_has_its_uid_tags_title_and_description(name: str) -> None:
    dashboard = FILES[name]
    assert dashboard["uid"] == UIDS[name]
    assert "id" not in dashboard
    assert dashboard["schemaVersion"] == 42
    assert "podgpu" in dashboard["tags"]
    assert dashboard["title"].startswith("podgpu: ")
    assert dashboard["description"]


@each_file
def test_a_dashboard_fits_into_a_configmap(name: str) -> None:
    assert (FOLDER / f"{name}.json").stat().st_size < 300_000


@each_file
def test_the_data_source_is_a_variable(name: str) -> None:
    first = FILES[name]["templating"]["list"][0]
    assert (first["type"], first["name"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert _datasources(FILES[name]) == {("prometheus", "${datasource}")}


def _datasources(part: object) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    if isinstance(part, Mapping):
        if isinstance(source := part.get("datasource"), Mapping):
            found.add((source["type"], source["uid"]))
        part = list(part.values())
    if isinstance(part, list):
        found.update(*map(_datasources, part))
    return found


@each_file
def test_panels_do_not_overlap(name: str) -> None:
    panels = FILES[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@each_panel
def test_a_panel_has_a_type_title_description_and_known_units(panel: Mapping[str, Any]) -> None:
    assert panel["type"] in CORE
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["targets"]
    defaults = panel["fieldConfig"]["defaults"]
    units = {defaults["unit"]} | {
        each["value"]
        for override in panel["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "unit"
    }
    assert units <= UNITS
    if "percent" in units and panel["type"] == "timeseries":
        assert defaults["max"] == 100


@each_panel
def test_unknown_values_are_not_drawn_as_0(panel: Mapping[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["custom"].get("spanNulls", False) is False
    assert "noValue" in panel["fieldConfig"]["defaults"]
    for target in panel["targets"]:
        # vector(NaN) is an unknown point.
        expr = target["expr"].removesuffix(" or vector(NaN)")
        assert not re.search(r"\bvector\s*\(|\babsent|\bor\s+0\b", expr)


@each_panel
def test_memory_is_in_mib(panel: Mapping[str, Any]) -> None:
    """DCGM reports memory in MiB; decimal megabytes would be wrong by 5 %."""
    exprs = [target["expr"] for target in panel["targets"]]
    if any(metric in expr and "/" not in expr for expr in exprs for metric in IN_MIB):
        overrides = [
            each["value"]
            for override in panel["fieldConfig"]["overrides"]
            for each in override["properties"]
        ]
        assert "mbytes" in (panel["fieldConfig"]["defaults"]["unit"], *overrides)


@each_panel
def test_table_columns_come_from_the_queries(panel: Mapping[str, Any]) -> None:
    """Each column of a table is a value of a query or a label that it keeps."""
    if panel["type"] != "table":
        return
    organized = panel["transformations"][-1]["options"]["renameByName"]
    values = {f"Value #{target['refId']}" for target in panel["targets"]}
    if len(values) == 1:
        values = {"Value"}
    kept = set(re.findall(r"\w+", " ".join(target["expr"] for target in panel["targets"])))
    assert set(organized) <= values | kept
    titles = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]]
    assert set(titles) <= set(organized.values())


@each_query
def test_queries_use_only_metrics_that_exist_by_default(query: Query) -> None:
    assert named(query.expr)
    assert named(query.expr) <= METRICS | RECORDED
    assert named(query.expr) <= DEFAULT_METRICS | RECORDED


@each_query
def test_queries_use_only_variables_of_the_dashboard(query: Query) -> None:
    own = {name for name in re.findall(r"\$(\w+)", query.expr) if not name.startswith("__")}
    assert own <= variables(FILES[query.dashboard]).keys() | numbers(FILES[query.dashboard]).keys()


@each_file
def test_every_variable_is_used(name: str) -> None:
    expressions = " ".join(query.expr for query in queries() if query.dashboard == name)
    for variable, about in variables(FILES[name]).items():
        others = " ".join(each["definition"] for each in variables(FILES[name]).values())
        assert f"${variable}" in expressions + others
        assert named(about["definition"]) <= METRICS | RECORDED


READ = re.compile(r"\b(?:" + "|".join(GROUPS) + r")\b(?=[{\[)])")
"""A reading of a device."""

AGGREGATED = re.compile(
    r"(?:(?:max|min|count) by \([^()]*\) \((?:(?:rate|avg_over_time|last_over_time)\()?"
    # The total over successive holders.
    r"|sum by \([^()]*\) \(increase\()$"
)


@each_query
def test_readings_of_a_device_are_aggregated(query: Query) -> None:
    """Readings have the labels of the holder, and two podgpus may report one device for a while.

    A reading may exist twice then, and a sum would be doubled.
    """
    for found in READ.finditer(query.expr):
        assert AGGREGATED.search(query.expr[: found.start()]), found.group()


@each_query
def test_fields_whose_dcgm_name_is_ambiguous_are_queried_by_podgpus_name(query: Query) -> None:
    """The counters list decides whether the DCGM name of such a field is a rate or a counter."""
    for name in named(query.expr):
        assert len({field.type for field in called(name)}) < 2, name


@each_file
def test_the_page_describes_each_dashboard(name: str) -> None:
    for word in (f"`{UIDS[name]}`", f"dashboards/{name}.json", FILES[name]["title"]):
        assert word in PAGE
    for panel in FILES[name]["panels"]:
        if panel["type"] == "row":
            assert panel["title"] in PAGE
