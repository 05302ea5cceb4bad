"""Alerts and dashboards use the metric and label names of the configured label form."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alerts import TABLES
from tests.deploy.alerts.case import Case, as_test
from tests.deploy.forms import ALL, Renamed, in_names
from tests.deploy.places import CHART
from tests.e2e import debian
from tests.e2e.charts import Values, sink
from tests.e2e.helm import Helm, HelmError
from tests.e2e.test_alerts import run

DCGM: Values = {"dcgmExporter": True}
HOSTNAME, OLD, FIRST = ALL["dcgm-hostname"], ALL["dcgm-old"], ALL["dcgm-1x"]
NAMELESS: Renamed = {"Hostname": "node"}
"""Without the label Hostname, the label `node` of the scrape is used."""

EXPORTED: Renamed = {name: f"exported_{name}" for name in ("namespace", "pod", "container")}


def variables(**values: str) -> Values:
    return {**DCGM, "extraEnv": [{"name": name, "value": text} for name, text in values.items()]}


def given(*arguments: str) -> Values:
    return {"arguments": list(arguments)}


REPORTED: list[tuple[Values, Renamed]] = [
    ({}, {}),
    (DCGM, {}),
    (sink("metrics", labels="dcgm-hostname"), HOSTNAME),
    (sink("metrics", labels="dcgm-old"), OLD),
    (sink("metrics", labels="dcgm-1x"), FIRST),
    (sink("metrics", hostname=False), NAMELESS),
    (sink("metrics", hostname=True), {}),
    (sink("metrics", labels="dcgm-old", hostname=False), {**OLD, **NAMELESS}),
    (given("--labels", "dcgm-hostname", "-k"), HOSTNAME),
    (given("-labels=dcgm-1x"), FIRST),
    (given("-o"), OLD),
    (given("-c", "5000", "--use-old-namespace"), OLD),
    (given("-o=false"), {}),
    (given("-o", "--labels=dcgm"), {}),
    (given("-n"), NAMELESS),
    (given("--no-hostname=true", "-o"), {**OLD, **NAMELESS}),
    (given("--no-hostname=0"), {}),
    (variables(PODGPU_LABELS="dcgm-hostname"), HOSTNAME),
    (variables(DCGM_EXPORTER_USE_OLD_NAMESPACE="true"), OLD),
    (variables(DCGM_EXPORTER_USE_OLD_NAMESPACE=""), {}),
    (variables(DCGM_EXPORTER_NO_HOSTNAME="1"), NAMELESS),
    ({**variables(PODGPU_LABELS="dcgm-1x"), **given("--labels=dcgm-old")}, OLD),
    ({**variables(DCGM_EXPORTER_NO_HOSTNAME="true"), **given("-n=false")}, {}),
    ({"serviceMonitor": {"honorLabels": False}}, EXPORTED),
    ({**given("-o"), "serviceMonitor": {"honorLabels": False}}, OLD),
]
SHOWN: Values = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
PLAIN: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    # The chart creates these only with a sink that has a queue, or a ledger.
    if group["name"] not in {"podgpu-queues", "podgpu-ledgers"}
    for rule in group["rules"]
]

each_value = pytest.mark.parametrize(
    ("values", "names"), REPORTED, ids=[json.dumps(values)[:70] for values, _ in REPORTED]
)


@each_value
def test_alert_rules_use_the_names_of_the_page(helm: Helm, values: Values, names: Renamed) -> None:
    groups = helm.template({**values, **SHOWN}).one("PrometheusRule", "podgpu")["spec"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(PLAIN)
    for rule, plain in zip(rules, PLAIN, strict=True):
        assert rule["expr"] == in_names(plain["expr"], names)
        for key, text in plain.get("annotations", {}).items():
            wanted = re.sub(
                r"\{\{.*?\}\}", lambda found: in_names(found[0], names), text, flags=re.DOTALL
            )
            assert rule["annotations"][key] == wanted


@each_value
def test_recording_rules_use_the_names_of_the_page(
    helm: Helm, values: Values, names: Renamed
) -> None:
    made = helm.template({**values, **SHOWN}).one("PrometheusRule", "podgpu-usage")
    plain = yaml.safe_load((CHART / "files" / "recording-rules.yaml").read_text())["groups"]
    for group in plain:
        for rule in group["rules"]:
            rule["expr"] = in_names(rule["expr"], names)
    assert made["spec"]["groups"] == plain


@pytest.mark.parametrize("absent", ["prometheusRule", "dashboards"])
def test_recording_rules_need_rules_and_dashboards(helm: Helm, absent: str) -> None:
    made = helm.template({**SHOWN, absent: {"enabled": False}})
    assert not [each for each in made.all("PrometheusRule") if "usage" in each["metadata"]["name"]]


COLUMNS = ("filterFieldsByName", "organize")


def columns(panel: Mapping[str, Any]) -> list[str]:
    """Return the column names in the transformations of a table panel."""
    found: list[str] = []
    for each in panel.get("transformations", ()):
        options = each["options"]
        found += options.get("include", {}).get("names", [])
        found += [*options.get("indexByName", {}), *options.get("renameByName", {})]
    return found


@each_value
def test_dashboards_use_the_names_of_the_page(helm: Helm, values: Values, names: Renamed) -> None:
    made = helm.template({**values, **SHOWN})
    for path in sorted(CHART.glob("files/dashboards/*.json")):
        plain = json.loads(path.read_text())
        found = json.loads(
            made.one("ConfigMap", f"podgpu-{path.stem}")["data"][f"podgpu-{path.name}"]
        )
        for one, other in zip(plain["panels"], found["panels"], strict=True):
            assert other["title"] == one["title"]
            assert other.get("description") == one.get("description")
            assert columns(other) == [names.get(name, name) for name in columns(one)]
            for target, changed in zip(
                one.get("targets", ()), other.get("targets", ()), strict=True
            ):
                assert changed["expr"] == in_names(target["expr"], names)
                assert changed["legendFormat"] == in_names(target["legendFormat"], names)
        for one, other in zip(
            plain["annotations"]["list"], found["annotations"]["list"], strict=True
        ):
            for key in ("expr", "titleFormat", "textFormat", "tagKeys"):
                assert other[key] == in_names(one[key], names)
        for one, other in zip(
            plain["templating"]["list"], found["templating"]["list"], strict=True
        ):
            assert other["name"] == one["name"]
            if one["type"] == "query":
                assert other["definition"] == in_names(one["definition"], names)
                assert other["query"]["query"] == other["definition"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (given("--labels", "dcgm-2x"), 'arguments: --labels: "dcgm-2x" is no label form; use'),
        (variables(PODGPU_LABELS="x"), 'extraEnv: PODGPU_LABELS: "x" is no label form; use one'),
        (sink("metrics", labels="${FORM}"), "config.sinks.metrics.labels"),
    ],
    ids=str,
)
def test_an_unknown_label_form_is_refused(helm: Helm, values: Values, message: str) -> None:
    with pytest.raises(HelmError) as caught:
        helm.template({**values, **SHOWN})
    assert message in str(caught.value)


def called(series: str, names: Renamed) -> str:
    """Rename a series and its labels; duplicate labels are merged."""
    metric, _, rest = series.rstrip("}").partition("{")
    pairs = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    kept = {names.get(name, name): value for name, value in pairs.items()}
    labels = ",".join(f'{name}="{value}"' for name, value in kept.items())
    return f"{names.get(metric, metric)}{{{labels}}}"


def in_form(case: Case, names: Renamed) -> Case:
    return replace(
        case,
        series={called(series, names): values for series, values in case.series.items()},
        firing=[
            {names.get(name, name): value for name, value in each.items()} for each in case.firing
        ],
    )


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (given("--labels", "dcgm-hostname"), HOSTNAME),
        (given("-o"), OLD),
        (given("-n"), NAMELESS),
        (given("--labels", "dcgm-1x"), FIRST),
        ({"serviceMonitor": {"honorLabels": False}}, EXPORTED),
    ],
    ids=["dcgm-hostname", "dcgm-old", "nameless", "dcgm-1x", "labels not honoured"],
)
def test_alerts_fire_with_the_names_of_the_page(
    helm: Helm, values: Values, names: Renamed, tmp_path: Path
) -> None:
    """Run the first case of each alert, with its annotations."""
    spec = helm.template({**values, **SHOWN}).one("PrometheusRule", "podgpu")["spec"]
    tests = [
        as_test(rule, in_form(TABLES[rule["alert"]][0], names)) for rule in PLAIN if "alert" in rule
    ]
    rules, cases = tmp_path / "rules.yaml", tmp_path / "tests.yaml"
    rules.write_text(yaml.safe_dump(spec))
    cases.write_text(
        yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests})
    )
    run(debian.prometheus().promtool, "test", "rules", cases)
