"""The parts that every alert rule must have. `tests/e2e/test_alerts.py` runs the test cases."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.fields.xid_catalogue import XIDS
from sources.nvml.event_counts import REASONS
from sources.nvml.options import Options
from tests.deploy.alerts import TABLES
from tests.deploy.alerts.case import ADVICE
from tests.deploy.metrics import DEFAULT_METRICS, METRICS, named

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "chart" / "files" / "alerts.yaml"
PAGE = (ROOT / "docs" / "alerts.md").read_text()
ALL: Sequence[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
ALERTS: Mapping[str, dict[str, Any]] = {rule["alert"]: rule for rule in ALL if "alert" in rule}
RECORDED: Mapping[str, str] = {rule["record"]: rule["expr"] for rule in ALL if "record" in rule}
UNITS: Mapping[str, str] = {
    "PodgpuEccUncorrected": "errors within 15 minutes",
    "PodgpuThermalThrottling": "of the samples of ten minutes",
    "PodgpuPowerBrake": "of the samples of ten minutes",
    "PodgpuXidHardware": "s since the last error",
    "PodgpuXidMemory": "s since the last error",
    "PodgpuXidFabric": "s since the last error",
    "PodgpuAllocatedIdle": "% busy in an hour",
    "PodgpuBusyUnattributed": "% busy in ten minutes",
    "PodgpuSourceStale": "s since its report",
    "PodgpuAttributionStale": "s since its report",
    "PodgpuUnresolvedDevice": "ids",
    "PodgpuSinkDropping": "readings or points within 15 minutes",
    "PodgpuSinkRejected": "points within 15 minutes",
    "PodgpuSinkQueueFilling": "s, the age of its oldest data",
    "PodgpuArchiveNotWritten": "s since the last success",
}
"""The units of thresholds."""
TABLE = re.compile(
    r"(?<=<!-- the table is made from the rule file and its tests -->\n\n).*?\n(?=\n)", re.S
)

each_alert = pytest.mark.parametrize("alert", list(ALERTS))


def paragraph(alert: str) -> str:
    """Return the section about an alert on the page."""
    found = re.search(rf"^### {alert}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/alerts.md has no section about {alert}"
    return found.group(1)


def expressions(alert: str) -> str:
    """Return an alert's expression and those of the recorded series that it uses."""
    own = ALERTS[alert]["expr"]
    return "\n".join([own, *(RECORDED[name] for name in named(own) & RECORDED.keys())])


@each_alert
def test_an_alert_has_all_required_parts(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description"}


@each_alert
def test_the_description_ends_with_what_to_do(alert: str) -> None:
    """It has to be sufficient without a runbook."""
    text = ALERTS[alert]["annotations"]["description"]
    advice = text.partition(ADVICE)[2]
    assert text.count(ADVICE) == 1
    assert len(advice) > 40
    assert advice.endswith(".")
    assert "{{" not in advice


def threshold(alert: str) -> str:
    """Return the threshold in the expression of a rule; empty if it has none."""
    found = set(re.findall(r"([0-9.]+)  # threshold$", ALERTS[alert]["expr"], re.MULTILINE))
    assert len(found) <= 1
    return next(iter(found), "")


def overview() -> str:
    """Return the table of the page: each alert with its settings, and an example of its summary."""
    rows = ["| Alert | Severity | `for` | Threshold | Example |", "|---|---|---|---|---|"]
    for alert, rule in ALERTS.items():
        severity, limit = rule["labels"]["severity"], threshold(alert)
        unit = f"`{limit}` {UNITS[alert]}" if limit else ""
        example = TABLES[alert][0].summary
        name = f"[{alert}](#{alert.lower()})"
        rows.append(f"| {name} | {severity} | `{rule['for']}` | {unit} | {example} |")
    return "\n".join(rows) + "\n"


def test_the_page_has_a_table_of_all_alerts() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes it."""
    page = PAGE
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        page = TABLE.sub(lambda _: overview(), page)
        (ROOT / "docs" / "alerts.md").write_text(page, encoding="utf-8")
    assert TABLE.findall(page) == [overview()]
    assert {alert for alert in ALERTS if threshold(alert)} == UNITS.keys()


@each_alert
def test_the_section_of_an_alert_has_all_required_parts(alert: str) -> None:
    for part in ("**Meaning**:", "**Check**:", "**Fix**:"):
        assert paragraph(alert).count(part) == 1


def test_the_page_has_exactly_the_alerts_of_the_rules() -> None:
    assert set(re.findall(r"^### (\w+)", PAGE, re.MULTILINE)) == ALERTS.keys()


def test_links_of_the_page_have_a_target() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
    for file in re.findall(r"\]\((?!#|https:)([^)#]*)", PAGE):
        assert (ROOT / "docs" / file).exists(), file


@each_alert
def test_the_texts_of_an_alert_name_the_node_and_the_gpu(alert: str) -> None:
    """The summary names the node; for a GPU the description has its UUID."""
    texts = ALERTS[alert]["annotations"]
    if "Hostname" in ALERTS[alert]["expr"] or "podgpu:" in ALERTS[alert]["expr"]:
        assert "$labels.Hostname" in texts["summary"]
        assert "$labels.UUID" in texts["description"]
    else:
        assert "or $labels.node $labels.instance" in texts["summary"]


@pytest.mark.parametrize("expression", [rule["expr"] for rule in ALL])
def test_metrics_in_the_rules_exist(expression: str) -> None:
    assert named(expression)
    assert named(expression) <= METRICS | RECORDED.keys()


def test_metrics_on_the_page_exist() -> None:
    # A name with dots after it stands for several metrics.
    assert named(re.sub(r"`[^`]*\.\.\.[^`]*`", "", PAGE)) <= METRICS | RECORDED.keys()


@each_alert
def test_the_section_of_an_alert_names_a_metric_of_its_expression(alert: str) -> None:
    chapter = PAGE[: PAGE.index(f"### {alert}\n")].rpartition("\n## ")[2].partition("\n### ")[0]
    read = named(expressions(alert)) - RECORDED.keys() - {"up"}
    # These metrics only add labels.
    read -= {"podgpu_device_info", "podgpu_device_holder_since_timestamp_seconds"}
    assert read & named(chapter + paragraph(alert))


@each_alert
def test_an_alert_needs_no_field_that_is_off_by_default(alert: str) -> None:
    assert named(expressions(alert)) <= RECORDED.keys() | DEFAULT_METRICS


COUNTED = {
    "podgpu_sink_dropped_total",
    "podgpu_sink_rejected_total",
}


@pytest.mark.parametrize("expression", [rule["expr"] for rule in ALL])
def test_a_missing_series_never_counts_as_0(expression: str) -> None:
    """No expression replaces a missing series by 0, except for some counters of podgpu itself."""
    assert not re.search(r"\babsent|\bvector\s*\(|\bscalar\s*\(", expression)
    for name in re.findall(r"\bor\s+0 \*\s*(?:sum without \(reason\) \()?([\w:]+)", expression):
        assert name in COUNTED


@pytest.mark.parametrize("expression", [rule["expr"] for rule in ALL])
def test_reasons_in_the_rules_exist(expression: str) -> None:
    for _, reasons in re.findall(r'reason(=~|=)"([^"]*)"', expression):
        assert set(reasons.split("|")) <= set(REASONS.values())


def codes(alert: str) -> Set[int]:
    """Return the XID codes that a rule matches; all its matchers are the same."""
    (matcher,) = set(re.findall(r'xid=~"([^"]*)"', ALERTS[alert]["expr"]))
    return {code for code in range(1, 1000) if re.fullmatch(matcher, str(code))}


def documented_codes(row: str) -> Set[int]:
    """Return the codes in a row of the page's table."""
    found = re.search(rf"^\| {row} \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert found
    spans = re.findall(r"(\d+)(?: to (\d+))?", found.group(1))
    return {code for first, last in spans for code in range(int(first), int(last or first) + 1)}


@pytest.mark.parametrize("row", ["hardware", "memory", "fabric", "application"])
def test_xid_codes_of_the_rules_match_the_page(row: str) -> None:
    assert codes(f"PodgpuXid{row.capitalize()}") == documented_codes(row)


def test_an_affected_pod_has_an_alert_for_each_code_that_is_not_of_a_program() -> None:
    assert codes("PodgpuXidAffectedPod") == {
        code for row in ("hardware", "memory", "fabric") for code in documented_codes(row)
    }


def test_no_xid_code_has_two_classes() -> None:
    rows = ("hardware", "memory", "fabric", "application", "none")
    assert max(Counter(code for row in rows for code in documented_codes(row)).values()) == 1


def test_all_xid_codes_of_the_page_have_a_series_from_the_start() -> None:
    rows = ("hardware", "memory", "fabric", "application", "none")
    assert set(Options().xid_codes) == {code for row in rows for code in documented_codes(row)}


@pytest.mark.parametrize("row", ["hardware", "memory", "fabric", "application"])
def test_the_catalogue_names_the_alert_of_each_code(row: str) -> None:
    named_by_catalogue = {code for code, known in XIDS.items() if known.alert == row}
    assert codes(f"PodgpuXid{row.capitalize()}") == named_by_catalogue


def inhibitions() -> Sequence[Mapping[str, Any]]:
    """Return the inhibition rules for Alertmanager on the page."""
    (block,) = re.findall(r"^```yaml\n(inhibit_rules:.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    rules: Sequence[Mapping[str, Any]] = yaml.safe_load(block)["inhibit_rules"]
    return rules


def matched(matchers: Sequence[str]) -> Set[str]:
    """Return the alerts that matchers select."""
    (pattern,) = [found[1] for each in matchers if (found := re.match('alertname=~?"(.*)"', each))]
    return {alert for alert in ALERTS if re.fullmatch(pattern, alert)}


@pytest.mark.parametrize("rule", inhibitions(), ids=lambda rule: rule["source_matchers"][0])
def test_an_inhibition_needs_labels_that_both_alerts_have(rule: Mapping[str, Any]) -> None:
    """Labels that neither alert has are equal for Alertmanager; it would inhibit all alerts."""
    assert rule.keys() == {"source_matchers", "target_matchers", "equal"}
    sources, targets = matched(rule["source_matchers"]), matched(rule["target_matchers"])
    assert sources
    assert targets
    assert not sources & targets
    firsts = [TABLES[alert][0].firing[0] for alert in (*sources, *targets)]
    for label in rule["equal"]:
        assert all(each.get(label) for each in firsts), label
    if "UUID" not in rule["equal"]:
        assert 'node=~".+"' in rule["source_matchers"]


def test_every_alert_has_test_cases() -> None:
    assert TABLES.keys() == ALERTS.keys()


@each_alert
def test_the_cases_of_an_alert_include_firing_with_texts_not_firing_and_resolved(
    alert: str,
) -> None:
    cases = TABLES[alert]
    assert cases[0].firing
    assert cases[0].summary
    assert cases[0].resolved
    assert any(not case.firing for case in cases)
    assert len({case.about for case in cases}) == len(cases)
    for case in cases:
        assert not case.summary or len(case.firing) == 1
        assert case.resolved is None or (case.firing and case.resolved > case.at)
