"""Play recordings through all alert rules, with promtool of Debian and of Prometheus 3."""

import re
from collections.abc import Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from sources.replay.options import DEMO, recording_path
from tests.deploy.alerts.played import SCRAPE, scraped
from tests.deploy.metrics import named
from tests.deploy.places import CHART, DOCS
from tests.e2e.test_alerts import promtool, run

__all__ = ["promtool"]

RULES = CHART / "files" / "alerts.yaml"
BUSY = sorted((Path(__file__).parents[1] / "deploy" / "busy").glob("*.podgpu.gz"))
TWO_HOURS = 120
"""Minutes."""
POWER, LOAD = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL"
CAPPED = {
    "alert": "Capped",
    "expr": 'podgpu:clock_throttle_active:avg10m{reason="power_cap"} > 0.5',
    "for": "1h",
}
"""An alert that fires on each GPU that works at its power limit."""


@cache
def played(recording: Path, minutes: int) -> Mapping[str, str]:
    return scraped(recording, minutes, named(RULES.read_text()) | {POWER})


def asserted(
    promtool: Path,
    folder: Path,
    series: Mapping[str, str],
    expected: Mapping[int, Set[str]],
    more: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Assert which alerts fire.

    Args:
        promtool: the program.
        folder: a folder for its files.
        series: the values by series.
        expected: the names of all alerts that fire, by minute.
        more: rules in addition to those of podgpu.
    """
    rules, cases = folder / "rules.yaml", folder / "tests.yaml"
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules.write_text(yaml.safe_dump({"groups": [*groups, {"name": "more", "rules": list(more)}]}))
    queries = [
        {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)
            ],
        }
        for minute, alerts in expected.items()
    ]
    test = {
        "interval": f"{SCRAPE}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": queries,
    }
    cases.write_text(
        yaml.safe_dump(
            {"rule_files": [str(rules)], "evaluation_interval": f"{SCRAPE}s", "tests": [test]}
        )
    )
    run(promtool, "test", "rules", cases)


def numbers(series: Mapping[str, str], metric: str) -> list[float]:
    """Return all values of a metric."""
    return [
        float(value)
        for name, values in series.items()
        if name.startswith(metric + "{")
        for value in values.split()
        if value not in {"_", "stale"}
    ]


@pytest.mark.parametrize("recording", BUSY, ids=lambda path: path.name)
def test_no_alert_fires_on_a_healthy_busy_gpu_for_two_hours(
    promtool: Path, recording: Path, tmp_path: Path
) -> None:
    """The recording is played in a loop."""
    series = played(recording, TWO_HOURS)
    load = numbers(series, LOAD)
    assert sum(load) / len(load) > 30
    quiet: dict[int, Set[str]] = {minute: set() for minute in range(1, TWO_HOURS)}
    asserted(promtool, tmp_path, series, quiet)


def test_the_recorded_training_is_at_the_power_limit(promtool: Path, tmp_path: Path) -> None:
    """So an alert about the power limit would fire on it."""
    (recording,) = [path for path in BUSY if "train" in path.name]
    series = played(recording, TWO_HOURS)
    assert max(numbers(series, POWER)) > 680  # of 700 W
    asserted(promtool, tmp_path, series, {50: set(), 100: {"Capped"}}, [CAPPED])


def test_the_demo_causes_the_alerts_that_the_page_lists(promtool: Path, tmp_path: Path) -> None:
    page = (DOCS / "alerts.md").read_text()
    section = page.partition("## Try the alerts\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(Podgpu\w+)`", section))
    series = played(recording_path(DEMO), 16)
    asserted(promtool, tmp_path, series, {14: listed, 15: listed})
