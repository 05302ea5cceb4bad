"""Recording rules: what was used in each five minutes, hour and day, for sums over weeks.

`increase()` extrapolates to the ends of its window, and does not count the first sample of a
series. Over a week of short pods both are large errors. The rules record the exact difference
between the last sample of the last five minutes and the last sample before. So the sum of the
recorded values over any time is what the counter has grown in that time.

The sums of hours and days have far fewer points and no pods: a report on months reads them.
"""

from typing import Any, Final

import yaml

from podgpu.cli.usage.prometheus.recorded_series import (
    CONTAINER,
    DAY,
    DEVICE,
    HOUR,
    LONGEST_GAP,
    OF_CONTAINERS,
    OF_DEVICE,
    OF_DEVICES,
    OF_NAMESPACE,
    STEP,
    STEP_SECONDS,
    STEPS,
    UNMEASURED,
    container_growth,
    container_rule,
    device_growth,
    device_rule,
    namespace_rule,
    steps_rule,
)

__all__ = [
    "DEVICE",
    "GPUS",
    "OF_DEVICE",
    "RULES",
    "STEP",
    "STEP_SECONDS",
    "container_rule",
    "device_rule",
    "rules_text",
    "workload_rule",
]

OF_WORKLOAD: Final = "Hostname, namespace, owner_kind, owner_name"


def workload_rule(quantity: str) -> str:
    """Return the name of the rule for a quantity of workloads, such as `held_seconds`."""
    return f"podgpu:workload_{quantity}:increase{STEP}"


GPUS: Final = "podgpu:device_gpus:ratio"
"""A device in GPUs: 1, or the part of a MIG instance by its compute slices."""

_FOUR_SLICES: Final = r'".*\\b(A30|RTX PRO 6000)\\b.*"'

_OF_NAMESPACES: Final = (*OF_CONTAINERS, UNMEASURED)

_AFTER_HOUR: Final = "on () (minute() >= 5 < 10)"
"""Once an hour. The evaluation before has recorded the last five minutes of the hour."""

_AFTER_DAY: Final = "on () (hour() == 0 and on () minute() >= 10 < 15)"
"""Once a day, after the sums of the last hour."""

_EARLIER: Final = "offset 3m"
"""The ends of the window are between two evaluations, where there is no sample: whether a window
includes a sample at its start depends on the release of Prometheus. And no sum needs a value of the
same evaluation, which vmalert may not have stored yet."""


def _sizes() -> str:
    device = f"max by ({DEVICE})"

    def known(matchers: str) -> str:
        return f"{device} (last_over_time(podgpu_device_info{{{matchers}}}[{LONGEST_GAP}]))"

    parts = [known('GPU_I_PROFILE=""')]
    for slices in (1, 2, 3, 4, 7):
        profile = f'GPU_I_PROFILE=~"{slices}[cg][.].*"'
        parts.append(f"{slices} / 7 * {known(f'{profile},model!~{_FOUR_SLICES}')}")
        if slices <= 4:
            parts.append(f"{slices} / 4 * {known(f'{profile},model=~{_FOUR_SLICES}')}")
    return "\nor ".join(parts)


def _by_workload(rule: str, factor: str = "") -> str:
    """Return sums by node, namespace and workload; without a known workload, with empty names.

    A pod can have several series, of which one is used: its owner may change, or become known late.
    The workload of a job is its user, that of a container without a pod its Compose project, as in
    `podgpu usage --by workload`. If these are unknown, the owner is its own workload.
    """

    def value(matchers: str = "") -> str:
        return f"({rule}{matchers}{factor})"

    names = "owner_kind, owner_name"
    of_pods = (
        f"topk by (pod_uid) (1, max by (pod_uid, {names}) "
        f'(last_over_time(podgpu_pod_info{{pod_uid!="",owner_name!=""}}[{LONGEST_GAP}])))'
    )
    user = f'last_over_time(podgpu_job_info{{owner_uid!="",user!=""}}[{LONGEST_GAP}])'
    project = (
        'last_over_time(podgpu_podless_container_info{owner_uid!="",compose_project!=""}'
        f"[{LONGEST_GAP}])"
    )
    described = (
        f"topk by (owner_uid) (1, max by (owner_uid, {names}) (\n"
        f"    {_named(user, 'User', 'user')}\n"
        f"    or {_named(project, 'ComposeProject', 'compose_project')}\n  ))"
    )
    otherwise = f"\n  or on ({CONTAINER}, {DEVICE})\n  "
    job, container = value('{hpc_job!=""}'), value('{owner_uid!="",hpc_job=""}')
    parts = (
        f"{value()}\n    * on (pod_uid) group_left ({names}) {of_pods}",
        f"""{value('{owner_uid!=""}')}\n    * on (owner_uid) group_left ({names}) {described}""",
        _named(job, "SlurmJob", "hpc_job"),
        _named(container, "Container", "container"),
        value(),
    )
    return f"sum by ({OF_WORKLOAD}) (\n  {otherwise.join(parts)}\n)"


def _named(value: str, kind: str, label: str) -> str:
    """Return a value with a workload of this kind, whose name is the value of a label."""
    with_kind = f'label_replace({value}, "owner_kind", "{kind}", "owner_uid", ".*")'
    return f'label_replace({with_kind}, "owner_name", "$1", "{label}", "(.*)")'


def _hours() -> dict[str, str]:
    """Return the rules that sum up the five minutes of each UTC hour."""

    def over(rule: str) -> str:
        return f"sum_over_time({rule}[1h] {_EARLIER})"

    held, busy = (over(container_rule(name)) for name in ("held_seconds", "busy_seconds"))
    of_namespaces = {name: over(container_rule(name)) for name in OF_CONTAINERS}
    of_namespaces[UNMEASURED] = f"{held} unless on ({CONTAINER}, {DEVICE}) {busy}"
    every = {
        namespace_rule(name, HOUR): f"sum by ({OF_NAMESPACE}) ({value})"
        for name, value in of_namespaces.items()
    }
    every |= {device_rule(name, HOUR): over(device_rule(name)) for name in OF_DEVICES}
    every[steps_rule(HOUR)] = over(STEPS)
    return {name: f"{value} and {_AFTER_HOUR}" for name, value in every.items()}


def _days() -> dict[str, str]:
    """Return the rules that sum up the hours of each UTC day."""
    names = [(namespace_rule(name, HOUR), namespace_rule(name, DAY)) for name in _OF_NAMESPACES]
    names += [(device_rule(name, HOUR), device_rule(name, DAY)) for name in OF_DEVICES]
    names.append((steps_rule(HOUR), steps_rule(DAY)))
    return {day: f"sum_over_time({hour}[1d] {_EARLIER}) and {_AFTER_DAY}" for hour, day in names}


def _rules() -> list[dict[str, str]]:
    of_containers = {container_rule(name): container_growth(name) for name in OF_CONTAINERS}
    of_devices = {device_rule(name): device_growth(name) for name in OF_DEVICES}
    of_workloads = {
        **{workload_rule(name): _by_workload(container_rule(name)) for name in OF_CONTAINERS},
        workload_rule("gpu_seconds"): _by_workload(
            container_rule("held_seconds"), f" * on ({DEVICE}) group_left () {GPUS}"
        ),
    }
    every = {
        GPUS: _sizes(),
        **of_containers,
        **of_devices,
        **of_workloads,
        STEPS: "vector(1)",
        **_hours(),
        **_days(),
    }
    return [{"record": name, "expr": expr} for name, expr in every.items()]


RULES: Final[dict[str, Any]] = {
    "groups": [{"name": "podgpu-recorded-usage", "interval": STEP, "rules": _rules()}]
}

_HEAD: Final = """\
# Recording rules of the dashboard "podgpu: usage and cost" and of `podgpu usage --prometheus`,
# explained in docs/dashboards.md.
# `python -m deploy.dashboards` writes this file. Without the Prometheus operator, Prometheus can
# use it as a rule file.
"""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def rules_text() -> str:
    """Return the content of the rule file."""
    return _HEAD + yaml.dump(RULES, Dumper=_Dumper, sort_keys=False, width=1000)
