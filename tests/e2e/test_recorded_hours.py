"""The recorded hours and days have all of what was recorded in five minutes, each once.

promtool of Debian and of Prometheus 3 evaluates them, at multiples of five minutes from 00:00 UTC.
"""

from pathlib import Path

import yaml

from podgpu.cli.usage.prometheus.recorded_series import (
    DAY,
    HOUR,
    OF_CONTAINERS,
    OF_DEVICES,
    UNMEASURED,
    container_rule,
    device_rule,
    namespace_rule,
    steps_rule,
)
from tests.e2e.test_alerts import run
from tests.e2e.test_recording_rules import (
    RULES,
    Case,
    accounted,
    as_test,
    held,
    of_owner,
    place,
    promtool,
)

__all__ = ["promtool"]

DAYS = "0+60x3000"
"""More than two days of a counter of seconds, with a sample each minute."""

SPAN = "52h"


def grown(pod: str, quantity: str) -> str:
    return held(pod).replace("held_seconds", quantity)


def busy(pod: str) -> str:
    return grown(pod, "busy_seconds")


def device(name: str) -> str:
    return f"podgpu_device_{name}_total{{{place()}}}"


GROWN = 60 * 499 + 24060 + 60 * 30 + 60 * (1139 - 932)
"""Seconds in the story with a reset after 500 minutes and a gap, up to the last sample of 19 hours.

The last evaluation before the reset has the sample of minute 499.
"""


def ended(first: int, count: int) -> str:
    """Return a counter of a pod that runs for some minutes, and its last samples."""
    return f"_x{first} 30+60x{count} stale"


CASES = {
    "a steady hour, and a steady day": Case(
        {accounted(): DAYS, held(): DAYS},
        {
            f"last_over_time({namespace_rule('held_seconds', HOUR)}[2h])": 3600,
            f"last_over_time({namespace_rule('held_seconds', DAY)}[30h])": 86400,
            f"last_over_time({device_rule('accounted_seconds', DAY)}[30h])": 86400,
            f"last_over_time({steps_rule(HOUR)}[2h])": 12,
            f"last_over_time({steps_rule(DAY)}[30h])": 288,
            # Those of the hour and the day before have only the first evaluation.
            f"count_over_time({steps_rule(HOUR)}[{SPAN}])": 50,
            f"count_over_time({steps_rule(DAY)}[{SPAN}])": 3,
        },
    ),
    "short pods at the edges of hours and of the day": Case(
        {
            accounted(): DAYS,
            **{held(f"p{at}"): ended(at, 7) for at in (57, 118, 600, 1433, 1438, 1440, 1443)},
        },
        {f"sum_over_time({namespace_rule('held_seconds', HOUR)}[{SPAN}])": 7 * (30 + 7 * 60)},
    ),
    "jobs and containers are in no namespace, and none of their usage is lost": Case(
        {
            accounted(): DAYS,
            held(): "0+15x3000",
            of_owner("slurm://c/7/1", hpc_job="7"): "0+20x3000",
            of_owner("slurm://c/8/1", hpc_job="8"): "0+20x3000",
            of_owner("docker://a", container="web"): "0+5x3000",
        },
        {
            f'last_over_time({namespace_rule("held_seconds", HOUR)}{{namespace=""}}[2h])': 2700,
            f'last_over_time({namespace_rule("held_seconds", DAY)}{{namespace=""}}[30h])': 64800,
            f'last_over_time({namespace_rule("held_seconds", DAY)}{{namespace="ml"}}[30h])': 21600,
            f'last_over_time({namespace_rule(UNMEASURED, HOUR)}{{namespace=""}}[2h])': 2700,
        },
    ),
    "held time without busy time is recorded apart": Case(
        {accounted(): DAYS, held("p"): DAYS, busy("p"): "0+30x3000", held("q"): "0+15x3000"},
        {
            f"last_over_time({namespace_rule('held_seconds', HOUR)}[2h])": 4500,
            f"last_over_time({namespace_rule('busy_seconds', HOUR)}[2h])": 1800,
            f"last_over_time({namespace_rule(UNMEASURED, HOUR)}[2h])": 900,
            f"last_over_time({namespace_rule(UNMEASURED, DAY)}[30h])": 900 * 24,
        },
    ),
    "a reset, and a gap of half an hour": Case(
        {
            accounted(): "0+60x500 60+60x400 _x30 25860+60x2000",
            held(): "0+60x500 60+60x400 _x30 25860+60x2000",
        },
        {
            # An hour has what its records of five minutes have, also in a gap and at a reset: what
            # counters grew in the five minutes before the reset is lost, and the gap is counted.
            f"sum_over_time({namespace_rule('held_seconds', HOUR)}[20h] offset 30h)": GROWN,
            f"sum_over_time({device_rule('accounted_seconds', HOUR)}[20h] offset 30h)": GROWN,
        },
    ),
    "the days of devices are the sums of their hours": Case(
        {accounted(): DAYS, **{device(name): "5+7x3000" for name in OF_DEVICES[1:]}},
        {
            f"sum_over_time({device_rule(name, period)})": 60 * 24 * 7
            for name in OF_DEVICES[1:]
            for period in (f"{HOUR}[24h] offset 1h", f"{DAY}[24h]")
        },
    ),
    "the hours of namespaces are the sums of their containers": Case(
        {
            accounted(): DAYS,
            **{grown("p", name): "0+13x3000" for name in OF_CONTAINERS},
            **{grown("q", name): "_x1000 1+13x200 stale" for name in OF_CONTAINERS},
        },
        {
            f"sum_over_time({rule}[40h] offset 1h)": 13 * 60 * 40 + 1 + 13 * 200
            for name in OF_CONTAINERS
            for rule in (namespace_rule(name, HOUR), container_rule(name))
        },
    ),
}


def test_hours_and_days_have_each_five_minutes_once(promtool: Path, tmp_path: Path) -> None:
    cases = tmp_path / "tests.yaml"
    listed = [as_test(name, case, "1m", "49h9m") for name, case in CASES.items()]
    content = {"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": listed}
    cases.write_text(yaml.safe_dump(content))
    run(promtool, "test", "rules", cases)
