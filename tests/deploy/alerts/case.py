"""A test case of an alert, and its form in a test file for promtool.

Samples are a minute apart, from 0 on. Values are in promtool's notation: `1x9` is 1 ten times,
`_x9` nine minutes without a sample, `0+2x9` grows by 2, `stale` ends a series. A window of ten
minutes has ten samples in Prometheus 3 and eleven before: no case depends on that.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Labels = Mapping[str, str]

OTHER_NAME = "dcgm-exporter-x7f9k"
NODE, UUID, BUS = "node-1", "GPU-aaaa", "00000000:01:00.0"
TARGET: Labels = {"job": "podgpu", "instance": "10.0.0.1:9400", "node": NODE}
"""The labels that the scrape adds to all series."""

JOB: Labels = {"hpc_job": "4711", "owner_uid": "slurm://hpc/4711/1"}
PODLESS: Labels = {"container": "lab-web-1", "owner_uid": "docker://8d05ac72"}
"""A job, and a container without a pod, in the families that have `pod_uid`."""


def series(metric: str, **labels: str) -> str:
    """Return a series of podgpu."""
    return _written(metric, {**TARGET, **labels})


def gpu(metric: str, pod: str = "", uuid: str = UUID, index: str = "0", **more: str) -> str:
    """Return a series of a GPU, with the labels of a pod if that is the only holder."""
    holder = {"namespace": "ml" if pod else "", "pod": pod, "container": "main" if pod else ""}
    return series(metric, **{"gpu": index, "UUID": uuid, "Hostname": NODE, **holder, **more})


def instance(metric: str, pod: str = "", number: str = "2", **more: str) -> str:
    """Return a series of a MIG instance."""
    place = {"GPU_I_PROFILE": "1g.10gb", "GPU_I_ID": number, "GPU_CI_ID": "0"}
    return gpu(metric, pod, **{**place, **more})


def device(**more: str) -> Labels:
    """Return the labels of an alert about a GPU."""
    return {"gpu": "0", "UUID": UUID, "Hostname": NODE, **more}


def own(**more: str) -> Labels:
    """Return the labels of an alert about podgpu itself."""
    return {**TARGET, **more}


@dataclass(frozen=True, slots=True)
class Case:
    """The expected state of an alert at one time.

    Attributes:
        about: the name of the case.
        series: the values by series.
        at: the time in minutes from the first sample.
        firing: the labels of each alert that fires then, without name and severity.
        summary: the summary of the alert; only if exactly one fires.
        description: its description, without what to do; as for the summary.
        resolved: a later minute at which none fires any more; None if that is not tested.
    """

    about: str
    series: Mapping[str, str]
    at: int
    firing: Sequence[Labels] = ()
    summary: str = ""
    description: str = ""
    resolved: int | None = None


ADVICE = "What to do: "
"""The beginning of the last part of each description, which is the same for each alert."""


def as_test(rule: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """Return a case as an element of `tests` in a file for `promtool test rules`.

    Alerts under the node name that another exporter uses are not checked.
    """
    alert, severity = rule["alert"], rule["labels"]["severity"]
    found = [
        {"labels": _written("ALERTS", _fired(alert, severity, labels)), "value": 1}
        for labels in case.firing
    ]
    query = f'ALERTS{{alertname="{alert}",alertstate="firing",Hostname!="{OTHER_NAME}"}}'
    test: dict[str, Any] = {
        "name": f"{alert}: {case.about}",
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values} for name, values in case.series.items()
        ],
        "promql_expr_test": [{"expr": query, "eval_time": f"{case.at}m", "exp_samples": found}],
    }
    if case.resolved is not None:
        test["promql_expr_test"].append(
            {"expr": query, "eval_time": f"{case.resolved}m", "exp_samples": []}
        )
    if case.summary:
        advice = rule["annotations"]["description"].partition(ADVICE)[2]
        expected = {
            "exp_labels": {"severity": severity, **case.firing[0]},
            "exp_annotations": {
                "summary": case.summary,
                "description": f"{case.description} {ADVICE}{advice}",
            },
        }
        test["alert_rule_test"] = [
            {"eval_time": f"{case.at}m", "alertname": alert, "exp_alerts": [expected]}
        ]
    return test


def with_other_exporter(case: Case) -> Case | None:
    """Add the DCGM series of another exporter for the same devices; return None if there are none.

    It uses its pod name as the node name, as dcgm-exporter does by default.
    """
    other = {"job": "dcgm-exporter", "instance": "10.0.0.1:9401", "Hostname": OTHER_NAME}
    copies = {
        re.sub(
            r'\b(job|instance|Hostname)="[^"]*"', lambda m: f'{m[1]}="{other[m[1]]}"', name
        ): values
        for name, values in case.series.items()
        if name.startswith("DCGM_")
    }
    if not copies:
        return None
    return replace(case, series={**case.series, **copies}, summary="", description="")


def _fired(alert: str, severity: str, labels: Labels) -> Labels:
    return {"alertname": alert, "alertstate": "firing", "severity": severity, **labels}


def _written(metric: str, labels: Labels) -> str:
    pairs = ",".join(f'{name}="{value}"' for name, value in labels.items() if value)
    return f"{metric}{{{pairs}}}"
