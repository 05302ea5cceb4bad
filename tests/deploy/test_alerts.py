"""The alert rules: what every one of them has to have. What they do is tried by promtool."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pytest
import yaml

from sources.nvml.options import Options
from sources.nvml.readers import REASONS
from tests.deploy.alerts import TABLES
from tests.deploy.metrics import GROUPS, METRICS, UNASKED, named

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "chart" / "files" / "alerts.yaml"
PAGE = (ROOT / "docs" / "alerts.md").read_text()
ALL: Sequence[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
ALERTS: Mapping[str, dict[str, Any]] = {rule["alert"]: rule for rule in ALL if "alert" in rule}
RECORDED: Mapping[str, str] = {rule["record"]: rule["expr"] for rule in ALL if "record" in rule}
LINK = "docs/alerts.md#"

each_alert = pytest.mark.parametrize("alert", list(ALERTS))


def paragraph(alert: str) -> str:
    """Return what the page says of an alert."""
    found = re.search(rf"^### {alert}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/alerts.md has nothing of {alert}"
    return found.group(1)


def expressions(alert: str) -> str:
    """Return an alert's expression, with those of what it takes from recorded series."""
    own = ALERTS[alert]["expr"]
    return "\n".join([own, *(RECORDED[name] for name in named(own) & RECORDED.keys())])


@each_alert
def test_has_all_its_parts(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


@each_alert
def test_link_leads_to_its_paragraph(alert: str) -> None:
    assert ALERTS[alert]["annotations"]["runbook_url"] == LINK + alert.lower()
    for part in ("**Meaning**:", "**Check**:", "**Fix**:"):
        assert paragraph(alert).count(part) == 1


def test_page_has_no_alert_that_is_not_there() -> None:
    assert set(re.findall(r"^### (\w+)", PAGE, re.MULTILINE)) == ALERTS.keys()


def test_links_of_the_page_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
    for file in re.findall(r"\]\((?!#|https:)([^)#]*)", PAGE):
        assert (ROOT / "docs" / file).exists(), file


@each_alert
def test_names_its_place(alert: str) -> None:
    """The summary says where, and of a GPU the description says which."""
    given_out = ALERTS[alert]["annotations"]
    if "Hostname" in ALERTS[alert]["expr"] or "podgpu:" in ALERTS[alert]["expr"]:
        assert "$labels.Hostname" in given_out["summary"]
        assert "$labels.UUID" in given_out["description"]
    else:
        assert "or $labels.node $labels.instance" in given_out["summary"]


@pytest.mark.parametrize("expression", [rule["expr"] for rule in ALL])
def test_metrics_exist(expression: str) -> None:
    assert named(expression)
    assert named(expression) <= METRICS | RECORDED.keys()


def test_metrics_in_the_page_exist() -> None:
    # A name with dots behind it stands for several.
    assert named(re.sub(r"`[^`]*\.\.\.[^`]*`", "", PAGE)) <= METRICS | RECORDED.keys()


@each_alert
def test_paragraph_names_what_it_rests_on(alert: str) -> None:
    chapter = PAGE[: PAGE.index(f"### {alert}\n")].rpartition("\n## ")[2].partition("\n### ")[0]
    read = named(expressions(alert)) - RECORDED.keys() - {"up"}
    # Who is asked along with it goes without saying.
    read -= {"podgpu_device_info", "podgpu_device_holder_since_timestamp_seconds"}
    assert read & named(chapter + paragraph(alert))


@each_alert
def test_paragraph_says_what_has_to_be_asked_for(alert: str) -> None:
    for name in named(expressions(alert)) - RECORDED.keys() - UNASKED:
        asked = re.sub(r"\s+", " ", paragraph(alert))
        assert f"counters: {{also: [{GROUPS[name]}]}}" in asked


COUNTED = {
    "podgpu_unresolved_device_ids_total",
    "podgpu_config_reloads_total",
    "podgpu_sink_dropped_total",
    "podgpu_sink_rejected_total",
}


@pytest.mark.parametrize("expression", [rule["expr"] for rule in ALL])
def test_absence_is_no_reading(expression: str) -> None:
    """Nothing puts a 0 in the place of what isn't there, but for counters of podgpu's own."""
    assert not re.search(r"\babsent|\bvector\s*\(|\bscalar\s*\(", expression)
    for name in re.findall(r"\bor\s+0 \*\s*(?:sum without \(reason\) \()?([\w:]+)", expression):
        assert name in COUNTED


@pytest.mark.parametrize("expression", [rule["expr"] for rule in ALL])
def test_reasons_exist(expression: str) -> None:
    for _, reasons in re.findall(r'reason(=~|=)"([^"]*)"', expression):
        assert set(reasons.split("|")) <= set(REASONS.values())


def codes(alert: str) -> Set[int]:
    """Return the XID codes that a rule is about."""
    matcher = "".join(re.findall(r'xid=~"([^"]*)"', ALERTS[alert]["expr"]))
    return {code for code in range(1, 1000) if re.fullmatch(matcher, str(code))}


def given_out(row: str) -> Set[int]:
    """Return the codes in a row of the page's table."""
    found = re.search(rf"^\| {row} \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert found
    spans = re.findall(r"(\d+)(?: to (\d+))?", found.group(1))
    return {code for first, last in spans for code in range(int(first), int(last or first) + 1)}


@pytest.mark.parametrize("row", ["hardware", "memory", "fabric", "application"])
def test_codes_are_those_of_the_page(row: str) -> None:
    assert codes(f"PodgpuXid{row.capitalize()}") == given_out(row)


def test_no_code_has_two_classes() -> None:
    rows = ("hardware", "memory", "fabric", "application", "none")
    assert max(Counter(code for row in rows for code in given_out(row)).values()) == 1


def test_codes_that_start_at_0_have_a_class() -> None:
    rows = ("hardware", "memory", "fabric", "application", "none")
    assert set(Options().xid_codes) <= {code for row in rows for code in given_out(row)}


def inhibitions() -> Sequence[Mapping[str, Any]]:
    """The page's rules for Alertmanager."""
    (block,) = re.findall(r"^```yaml\n(inhibit_rules:.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    rules: Sequence[Mapping[str, Any]] = yaml.safe_load(block)["inhibit_rules"]
    return rules


def meant(matchers: Sequence[str]) -> Set[str]:
    """The alerts that matchers choose."""
    (pattern,) = [found[1] for each in matchers if (found := re.match('alertname=~?"(.*)"', each))]
    return {alert for alert in ALERTS if re.fullmatch(pattern, alert)}


@pytest.mark.parametrize("rule", inhibitions(), ids=lambda rule: rule["source_matchers"][0])
def test_what_is_held_back_is_about_the_same_place(rule: Mapping[str, Any]) -> None:
    """Alertmanager takes labels that are on neither alert for equal, and would hold all back."""
    assert rule.keys() == {"source_matchers", "target_matchers", "equal"}
    sources, targets = meant(rule["source_matchers"]), meant(rule["target_matchers"])
    assert sources
    assert targets
    assert not sources & targets
    firsts = [TABLES[alert][0].firing[0] for alert in (*sources, *targets)]
    for label in rule["equal"]:
        assert all(each.get(label) for each in firsts), label
    if "UUID" not in rule["equal"]:
        assert 'node=~".+"' in rule["source_matchers"]


def test_every_alert_has_a_table() -> None:
    assert TABLES.keys() == ALERTS.keys()


@each_alert
def test_table_tries_both_and_says_what_people_read(alert: str) -> None:
    cases = TABLES[alert]
    assert cases[0].firing
    assert cases[0].summary
    assert any(not case.firing for case in cases)
    assert len({case.about for case in cases}) == len(cases)
    for case in cases:
        assert not case.summary or len(case.firing) == 1
