"""Queries for the error of a split busy time, evaluated by two releases of promtool.

Samples are a minute apart.
"""

import re
from pathlib import Path

import pytest
import yaml

from pipeline.model import NS, split_error_ns
from tests.deploy.dashboards import filled, queries
from tests.e2e.test_alerts import run
from tests.e2e.test_recording_rules import promtool

__all__ = ["promtool"]

USAGE = Path(__file__).parents[2] / "docs" / "usage.md"
DEVICE = 'UUID="GPU-0",gpu="0",Hostname="n"'
SWITCHING = 2  # seconds of each minute


def series(contested: int) -> dict[str, str]:
    """Return a shared container with this contested time in each minute, and one that is alone."""
    values = {f"podgpu_device_accounted_seconds_total{{{DEVICE}}}": "0+60x20"}
    for pod, growth in {"shared": (contested, SWITCHING), "alone": (0, 0)}.items():
        labels = f'{DEVICE},namespace="ml",pod="{pod}"'
        values |= {
            f"podgpu_container_contested_busy_seconds_total{{{labels}}}": f"0+{growth[0]}x20",
            f"podgpu_container_switching_seconds_total{{{labels}}}": f"0+{growth[1]}x20",
        }
    return values


def documented() -> str:
    page = USAGE.read_text(encoding="utf-8")
    [query] = re.findall(r"```promql\n(2 \* sqrt.*?)```", page, re.DOTALL)
    return str(query)


def shown() -> str:
    values = {"namespace": ".+", "pod": ".+"}
    [expr] = [query.expr for query in queries() if "contested" in query.expr]
    return filled(expr, values, 60)


@pytest.mark.parametrize(
    ("query", "minutes", "contested", "whole"),
    [(documented(), 10, 8, 1), (shown(), 5, 9, 300)],
    ids=["documentation", "dashboard"],
)
def test_the_bound_is_that_of_the_growth_in_the_window(
    promtool: Path, tmp_path: Path, query: str, minutes: int, *, contested: int, whole: int
) -> None:
    """In seconds, or as a part of the whole time; 0 for a container that is alone."""
    bound = split_error_ns(contested * minutes * NS, SWITCHING * minutes * NS) or 0
    samples = [
        {
            "labels": f'{{gpu="0",Hostname="n",UUID="GPU-0",namespace="ml",pod="{pod}"}}',
            "value": value,
        }
        for pod, value in {"shared": bound / NS / whole, "alone": 0}.items()
    ]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": found} for name, found in series(contested).items()
        ],
        "promql_expr_test": [{"expr": query, "eval_time": "15m", "exp_samples": samples}],
    }
    cases = tmp_path / "tests.yaml"
    cases.write_text(
        yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [test]})
    )
    run(promtool, "test", "rules", cases)
