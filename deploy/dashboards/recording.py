"""Recording rules: what was used in each five minutes, for sums over weeks.

`increase()` extrapolates to the ends of its window, and does not count the first sample of a
series. Over a week of short pods both are large errors. The rules record the exact difference
between the last sample of the last five minutes and the last sample before. So the sum of the
recorded values over any time is what the counter has grown in that time.
"""

from typing import Any, Final

import yaml

DEVICE: Final = "UUID, GPU_I_ID, GPU_CI_ID"
OF_DEVICE: Final = f"Hostname, gpu, GPU_I_PROFILE, {DEVICE}"
OF_CONTAINER: Final = f"namespace, pod, container, pod_uid, {OF_DEVICE}"
OF_WORKLOAD: Final = "Hostname, namespace, owner_kind, owner_name"

STEP: Final = "5m"
STEP_SECONDS: Final = 300
_LATE: Final = "30s"
"""By this time, samples with a timestamp before a window are stored."""
_BEFORE: Final = "5m30s"
_LONGEST_GAP: Final = "1h"


def container_rule(quantity: str) -> str:
    """Return the name of the rule for a quantity of containers, such as `held_seconds`."""
    return f"podgpu:container_{quantity}:increase{STEP}"


def device_rule(quantity: str) -> str:
    """Return the name of the rule for a quantity of devices, such as `free_seconds`."""
    return f"podgpu:device_{quantity}:increase{STEP}"


def workload_rule(quantity: str) -> str:
    """Return the name of the rule for a quantity of workloads, such as `held_seconds`."""
    return f"podgpu:workload_{quantity}:increase{STEP}"


OF_CONTAINERS: Final = ("held_seconds", "busy_seconds", "energy_joules")
OF_DEVICES: Final = (
    *("accounted_seconds", "free_seconds", "unknown_held_seconds", "busy_seconds"),
    *("unattributed_busy_seconds", "unattributed_energy_joules"),
)
GPUS: Final = "podgpu:device_gpus:ratio"
"""A device in GPUs: 1, or the part of a MIG instance by its compute slices."""

_FOUR_SLICES: Final = r'".*\\b(A30|RTX PRO 6000)\\b.*"'


def _last(metric: str, labels: str, window: str, offset: str) -> str:
    return f"max by ({labels}) (last_over_time({metric}[{window}] offset {offset}))"


def _increase(metric: str, labels: str, guard: str) -> str:
    """Return the growth of a counter in five minutes.

    If the counter was reset, it is what the counter has counted since. If there is no earlier
    value, the whole value counts if `guard` has an earlier one: then the series is new. Otherwise
    it is unknown when the value was counted.

    The value before is that of the five minutes before, if there is one. A longer window would
    contain the last value of a podgpu with another address that has ended.
    """
    now = _last(metric, labels, STEP, _LATE)
    before = _last(metric, labels, STEP, _BEFORE)
    earlier = _last(metric, labels, _LONGEST_GAP, _BEFORE)
    return (
        f"{now}\n  - (\n    {before}\n    or {earlier}\n  ) >= 0\n"
        f"or (\n  {now}\n  and on ({DEVICE}) last_over_time({guard}[{_LONGEST_GAP}]"
        f" offset {_BEFORE})\n)"
    )


def _sizes() -> str:
    device = f"max by ({DEVICE})"

    def known(matchers: str) -> str:
        return f"{device} (last_over_time(podgpu_device_info{{{matchers}}}[{_LONGEST_GAP}]))"

    parts = [known('GPU_I_PROFILE=""')]
    for slices in (1, 2, 3, 4, 7):
        profile = f'GPU_I_PROFILE=~"{slices}[cg][.].*"'
        parts.append(f"{slices} / 7 * {known(f'{profile},model!~{_FOUR_SLICES}')}")
        if slices <= 4:
            parts.append(f"{slices} / 4 * {known(f'{profile},model=~{_FOUR_SLICES}')}")
    return "\nor ".join(parts)


def _by_workload(value: str) -> str:
    """Return sums by node, namespace and workload; without a known workload, with empty names.

    A pod can have several series, of which one is used: its owner may change, or become known late.
    """
    owner = (
        "topk by (pod_uid) (1, max by (pod_uid, owner_kind, owner_name) "
        f'(last_over_time(podgpu_pod_info{{pod_uid!="",owner_name!=""}}[{_LONGEST_GAP}])))'
    )
    return (
        f"sum by ({OF_WORKLOAD}) (\n"
        f"  ({value})\n    * on (pod_uid) group_left (owner_kind, owner_name) {owner}\n"
        f"  or on (namespace, pod, container, pod_uid, {DEVICE})\n  ({value})\n)"
    )


def _rules() -> list[dict[str, str]]:
    of_containers = {
        container_rule(name): _increase(
            f"podgpu_container_{name}_total", OF_CONTAINER, "podgpu_device_accounted_seconds_total"
        )
        for name in OF_CONTAINERS
    }
    of_devices = {
        device_rule(name): _increase(
            f"podgpu_device_{name}_total", OF_DEVICE, f"podgpu_device_{name}_total"
        )
        for name in OF_DEVICES
    }
    held = container_rule("held_seconds")
    of_workloads = {
        **{workload_rule(name): _by_workload(container_rule(name)) for name in OF_CONTAINERS},
        workload_rule("gpu_seconds"): _by_workload(f"{held} * on ({DEVICE}) group_left () {GPUS}"),
    }
    every = {GPUS: _sizes(), **of_containers, **of_devices, **of_workloads}
    return [{"record": name, "expr": expr} for name, expr in every.items()]


RULES: Final[dict[str, Any]] = {
    "groups": [{"name": "podgpu-recorded-usage", "interval": STEP, "rules": _rules()}]
}

_HEAD: Final = """\
# Recording rules of the dashboard "podgpu: usage and cost", explained in docs/dashboards.md.
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
