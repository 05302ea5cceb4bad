"""Test the alert rules with promtool of Debian and of Prometheus 3."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alerts import TABLES
from tests.deploy.alerts.case import as_test, with_other_exporter
from tests.deploy.alerts.healthy import ENDS, OWN_SERIES, READINGS
from tests.e2e import debian, peers

RULES = Path(__file__).parents[2] / "deploy" / "chart" / "files" / "alerts.yaml"
GROUPS: Mapping[str, dict[str, Any]] = {
    group["name"]: group for group in yaml.safe_load(RULES.read_text())["groups"]
}


@pytest.fixture(params=["Debian's", "Prometheus 3's"])
def promtool(request: pytest.FixtureRequest) -> Path:
    if request.param == "Debian's":
        return debian.prometheus().promtool
    return peers.prometheus().promtool


def run(promtool: Path, *words: str | Path) -> str:
    """Run promtool, assert status 0, and return its output."""
    done = subprocess.run(
        [promtool, *words], capture_output=True, text=True, check=False, timeout=300
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


def test_alert_rules_are_well_formed(promtool: Path) -> None:
    rules = sum(len(group["rules"]) for group in GROUPS.values())
    assert f"SUCCESS: {rules} rules found" in run(promtool, "check", "rules", RULES)


def tried(promtool: Path, folder: Path, groups: list[str], tests: list[dict[str, Any]]) -> None:
    """Run promtool's rule tests on some of the groups."""
    rules = folder / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [GROUPS[name] for name in groups]}))
    cases = folder / "tests.yaml"
    cases.write_text(
        yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests})
    )
    run(promtool, "test", "rules", cases)


@pytest.mark.parametrize("group", list(GROUPS))
def test_alerts_fire_exactly_in_their_cases(promtool: Path, group: str, tmp_path: Path) -> None:
    """Each group runs separately; with all groups each case would take six times as long."""
    tests = [
        as_test(rule, case)
        for rule in GROUPS[group]["rules"]
        if "alert" in rule
        for case in TABLES[rule["alert"]]
    ]
    tried(promtool, tmp_path, [group], tests)


def test_a_second_exporter_of_the_same_readings_changes_no_alert(
    promtool: Path, tmp_path: Path
) -> None:
    """As during a migration from dcgm-exporter."""
    tests = [
        as_test(rule, found)
        for group in GROUPS.values()
        for rule in group["rules"]
        if "alert" in rule
        for case in TABLES[rule["alert"]]
        if (found := with_other_exporter(case)) is not None
    ]
    assert len(tests) > 20
    tried(promtool, tmp_path, ["podgpu-memory", "podgpu-use"], tests)


def quiet(readings: str, own: str, *minutes: int) -> dict[str, Any]:
    """Return a test in which no alert fires; arguments are promtool's notation after a value."""
    values = {series: f"{value}{readings}" for series, value in READINGS.items()}
    values |= {series: f"{value}{own}" for series, value in OWN_SERIES.items()}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": found} for name, found in values.items()],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{at}m", "exp_samples": []}
            for at in minutes
        ],
    }


def test_no_alert_fires_on_healthy_nodes(promtool: Path, tmp_path: Path) -> None:
    always = f"x{ENDS}"
    tried(promtool, tmp_path, list(GROUPS), [quiet(always, always, 1, 20, 75, ENDS)])


def test_absent_series_are_not_treated_as_zero(promtool: Path, tmp_path: Path) -> None:
    """All readings disappear, for example because they are no longer configured, or podgpu too."""
    gone = quiet(f"x{ENDS} stale", "x200", ENDS + 3, ENDS + 20, ENDS + 65)
    all_gone = quiet(f"x{ENDS} stale", f"x{ENDS} stale", ENDS + 3, ENDS + 20, ENDS + 65)
    tried(promtool, tmp_path, list(GROUPS), [gone, all_gone])
