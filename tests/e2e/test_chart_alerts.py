"""The chart's PrometheusRule: the rule file, changed by values."""

from typing import Any

import pytest
import yaml

from tests.deploy.places import CHART
from tests.e2e.charts import Values, sink
from tests.e2e.helm import Helm, HelmError

GROUPS: list[dict[str, Any]] = yaml.safe_load(
    (CHART / "files" / "alerts.yaml").read_text(encoding="utf-8")
)["groups"]
QUEUES, LEDGERS = "podgpu-queues", "podgpu-ledgers"
OTLP = sink("collector", kind="otlp", endpoint="http://collector:4318")
LEDGER = sink("book", kind="ledger", path="/var/lib/podgpu/ledger.db")


def groups(helm: Helm, settings: dict[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
    """Return the groups of rules with settings of prometheusRule and other values."""
    rule = {"enabled": True, **(settings or {})}
    made = helm.template({**more, "prometheusRule": rule}).one("PrometheusRule")
    found: list[dict[str, Any]] = made["spec"]["groups"]
    return found


def alerts(helm: Helm, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the alerts by name."""
    return {
        rule["alert"]: rule
        for group in groups(helm, settings)
        for rule in group["rules"]
        if "alert" in rule
    }


@pytest.mark.parametrize(
    ("values", "without"),
    [
        ({}, {QUEUES, LEDGERS}),
        (OTLP, {LEDGERS}),
        (sink("lines", kind="jsonl"), {LEDGERS}),
        (LEDGER, {QUEUES}),
        ({"usage": {"enabled": True}}, {QUEUES}),
        ({"dcgmExporter": True}, {QUEUES, LEDGERS}),
    ],
    ids=str,
)
def test_the_rule_has_all_alerts_that_the_configuration_can_cause(
    helm: Helm, values: Values, without: set[str]
) -> None:
    expected = [group for group in GROUPS if group["name"] not in without]
    assert groups(helm, **values) == expected


def test_only_runbook_prefix_gives_alerts_a_runbook_url(helm: Helm) -> None:
    assert not any("runbook_url" in rule["annotations"] for rule in alerts(helm, {}).values())
    for name, rule in alerts(helm, {"runbookPrefix": "https://docs.example/podgpu/"}).items():
        link = f"https://docs.example/podgpu/docs/alerts.md#{name.lower()}"
        assert rule["annotations"]["runbook_url"] == link


def test_settings_change_only_their_alert(helm: Helm) -> None:
    plain = alerts(helm, {})
    made = alerts(
        helm,
        {
            "rules": {
                "PodgpuAllocatedIdle": {"for": "3h", "threshold": 12.5, "severity": "warning"},
                "PodgpuPowerBrake": {"threshold": 0.5},
                "PodgpuXidHardware": {"threshold": 86400},
                "PodgpuDown": {"labels": {"a": "b"}, "annotations": {"summary": "x", "note": "z"}},
            }
        },
    )
    idle = made.pop("PodgpuAllocatedIdle")
    assert (idle["for"], idle["labels"]) == ("3h", {"severity": "warning"})
    assert "[1h]) < 12.5  # threshold" in idle["expr"]
    brake = made.pop("PodgpuPowerBrake")["expr"]
    assert brake == plain["PodgpuPowerBrake"]["expr"].replace("> 0.1  #", "> 0.5  #")
    assert made.pop("PodgpuXidHardware")["expr"].endswith("< 86400  # threshold")
    down = made.pop("PodgpuDown")
    assert down["labels"] == {"severity": "critical", "a": "b"}
    assert down["annotations"].keys() == {"summary", "description", "note"}
    assert down["annotations"]["summary"] == "x"
    assert made == {name: rule for name, rule in plain.items() if name in made}


def test_labels_and_annotations_of_every_alert_and_of_one(helm: Helm) -> None:
    made = alerts(
        helm,
        {
            "additionalRuleLabels": {"team": "gpu", "severity": "ticket"},
            "additionalRuleAnnotations": {"board": "https://grafana.example"},
            "rules": {
                "PodgpuDown": {"labels": {"team": "nodes"}, "annotations": {"board": "x"}},
                "PodgpuGpuDown": {"severity": "page"},
            },
        },
    )
    assert made["PodgpuDown"]["labels"] == {"team": "nodes", "severity": "ticket"}
    assert made["PodgpuDown"]["annotations"]["board"] == "x"
    assert made["PodgpuGpuDown"]["labels"] == {"team": "gpu", "severity": "page"}
    assert all(rule["labels"].keys() == {"team", "severity"} for rule in made.values())


@pytest.mark.parametrize(
    "settings",
    [{"disabled": ["PodgpuDown"]}, {"rules": {"PodgpuDown": {"enabled": False}}}],
    ids=str,
)
def test_an_alert_can_be_omitted(helm: Helm, settings: dict[str, Any]) -> None:
    plain = alerts(helm, {})
    plain.pop("PodgpuDown")
    assert alerts(helm, settings) == plain
    assert "PodgpuDown" in alerts(helm, {"rules": {"PodgpuDown": {"enabled": True}}})


def test_a_group_without_rules_is_omitted(helm: Helm) -> None:
    made = {group["name"]: group["rules"] for group in groups(helm, **LEDGER)}
    names = [rule["alert"] for rule in made[LEDGERS]]
    values = {"rules": {name: {"enabled": False} for name in names}}
    assert {group["name"] for group in groups(helm, values, **LEDGER)} == {*made} - {LEDGERS}


@pytest.mark.parametrize(
    ("settings", "place", "message"),
    [
        ({"rules": {"PodgpuPowerCapped": {}}}, "rules", "'PodgpuPowerCapped' not allowed"),
        ({"rules": {"PodgpuDown": {"threshold": 1}}}, "rules/PodgpuDown", "'threshold' not all"),
        ({"rules": {"PodgpuDown": {"level": "x"}}}, "rules/PodgpuDown", "'level' not allowed"),
        ({"rules": {"PodgpuDown": {"for": "3 m"}}}, "rules/PodgpuDown/for", "does not match"),
        ({"rules": {"PodgpuDown": {"labels": {"a-b": "c"}}}}, "PodgpuDown/labels", "'a-b' not"),
        ({"rules": {"PodgpuDown": {"labels": {"a": 1}}}}, "PodgpuDown/labels/a", "want string"),
        ({"disabled": ["PodgpuX"]}, "disabled/0", "value must be one of 'PodgpuGpuDown'"),
        ({"additionalRuleLabels": {"a": True}}, "additionalRuleLabels/a", "want string"),
    ],
    ids=str,
)
def test_an_unknown_alert_or_setting_is_refused(
    helm: Helm, settings: dict[str, Any], place: str, message: str
) -> None:
    with pytest.raises(HelmError) as caught:
        groups(helm, settings)
    assert f"{place}'" in str(caught.value)
    assert message in str(caught.value)
