"""Public dashboards and programs that query dcgm-exporter's metrics find them on podgpu's page.

`public_dashboards.tsv` has the metrics that they query, with the labels that they use and the label
form that has these names. Metrics of other programs and recorded ones are left out.
"""

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from config.schema import Counters
from pipeline.counters.plan_builder import planned
from pipeline.fields import called
from pipeline.fields.name_answers import NameAnswers
from pipeline.model import NS, DeviceJobs, JobsReplaced
from tests.pipeline.exposition.pages import context, of, parsed, rendered
from tests.support.nodes import Node, claim, every_field, gpu, mig

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "migrating.md").read_text(encoding="utf-8")

OF_THE_SCRAPE = {"instance", "job", "cluster_id"}
"""Labels that Prometheus or its configuration adds."""

NOT_THERE = {
    "uid": "OpenCost groups by it, and dcgm-exporter does not have it either",
    "uuid": "of the label form dcgm-old; grouping by a label that is missing changes no value",
}
"""Labels of queries that are not on the page, each named in the documentation."""


_TYPES = ("gauge", "counter", "label")


class Dashboard:
    """The rows of one dashboard."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.metrics: dict[str, set[str]] = defaultdict(set)
        """Labels by metric."""
        self.panels: dict[str, str] = {}
        """Names of panels by metric."""

    @property
    def absent(self) -> list[str]:
        return [metric for metric in self.metrics if not list(called(metric))]


@cache
def dashboards() -> dict[str, Dashboard]:
    found: dict[str, Dashboard] = {}
    with (HERE / "public_dashboards.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            board = found.setdefault(row["dashboard"], Dashboard(row["form"]))
            assert board.form == row["form"]
            board.metrics[row["metric"]].update(row["labels"].split())
            board.panels[row["metric"]] = row["panel"]
    return found


def counters(board: Dashboard) -> str:
    """Return a list with a row for each metric that podgpu has.

    If fields of several types have the name, the row is a gauge, or else a counter.
    """
    rows = []
    for metric in board.metrics:
        types = {field.type for field in called(metric)}
        rows += [f"{metric}, {kind}, Help." for kind in _TYPES if kind in types][:1]
    return "\n".join(rows)


def labels_on_the_page(board: Dashboard) -> dict[str, set[str]]:
    """Return label names by metric, on the page of a node with a GPU and MIG instances."""
    ctx = context()
    reading = planned(counters(board), Counters(own=False))
    assert reading.complaints == ()
    assert reading.plan is not None
    ctx.plan = reading.plan
    node = Node()
    devices = [gpu(0), gpu(1), mig(gpu(1), 1)]
    node.has(*devices)
    node.podlist(claim(devices[0].uuid, "train-0"))
    node.say(JobsReplaced((DeviceJobs(0, None, ("4711",)),), 300 * NS), "jobs", "jobfiles")
    node.reads(*every_field(devices, plan=reading.plan))
    # As with `--kubernetes-virtual-gpus`: instances have the readings of their GPU too.
    page = rendered(node.snapshot(), ctx=ctx, labels=board.form, sharing="copies")
    series = parsed(page)
    return {
        metric: {name for labels, _ in of(series, metric) for name in labels}
        for metric in board.metrics
    }


@pytest.mark.parametrize("name", dashboards())
def test_each_metric_is_on_the_page_or_has_an_answer(name: str) -> None:
    board = dashboards()[name]
    found = labels_on_the_page(board)
    for metric in board.metrics:
        if metric in board.absent:
            answer = NameAnswers().about(metric)
            assert answer.startswith("is not available: "), (metric, answer)
        else:
            is_text = {field.type for field in called(metric)} == {"label"}
            assert bool(found[metric]) is not is_text, metric


@pytest.mark.parametrize("name", dashboards())
def test_each_label_is_on_the_page(name: str) -> None:
    board = dashboards()[name]
    found = labels_on_the_page(board)
    for metric, labels in board.metrics.items():
        on_page = {label.removeprefix("exported_") for label in labels - OF_THE_SCRAPE}
        if found[metric]:
            assert on_page - found[metric] <= NOT_THERE.keys(), metric


def rows() -> dict[str, str]:
    """Return the rows of the documentation's table by the text of their first column."""
    part = PAGE.partition("\n## Dashboards and OpenCost\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line for line in lines}


DOCUMENTED = {
    "12239": "12239",
    "nvidia-repository": "dcgm-exporter-dashboard.json",
    "nvidia-dynamo": "dynamo-disaggregated-inference.json",
    "15117": "15117",
    "22515": "22515",
    "25820": "25820",
    "openshift-console": "console-plugin-nvidia-gpu",
    "openshift-grafana": "label `hostname`",
    "datadog": "Datadog",
    "opencost": "OpenCost",
    "cost-agent": "`container`, `pod` and `namespace`",
    "container-insights": "Container Insights",
    "jobs": "`hpc_job`",
}
"""Words of the first column of the documentation's table."""


@pytest.mark.parametrize("name", dashboards())
def test_the_documentation_names_what_is_missing(name: str) -> None:
    board = dashboards()[name]
    (row,) = [line for first, line in rows().items() if DOCUMENTED[name] in first]
    missing = {label for labels in board.metrics.values() for label in labels} & NOT_THERE.keys()
    assert all(f"`{label}`" in row for label in missing)
    if len(board.absent) > 4:
        assert f"{len(board.absent)} of its {len(board.metrics)} metrics" in row
        return
    assert all(f"`{metric}`" in row for metric in board.absent)
    assert ("empty" in row) == bool(board.absent)
