"""The recording rules count what counters have grown: restarts, resets, gaps, first samples.

promtool of Debian and of Prometheus 3 evaluates them. Samples are 15 s apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.dashboards.recording import GPUS, container_rule, device_rule, workload_rule
from tests.deploy.dashboards import FOLDER
from tests.e2e import debian, peers
from tests.e2e.test_alerts import run

RULES = FOLDER.parent / "recording-rules.yaml"
HELD = container_rule("held_seconds")
AFTER = "142m"
LAST = 139.5 * 60
"""The last sample of the last evaluation, in seconds."""


def place(instance: str = "a", **labels: str) -> str:
    pairs = {"instance": instance, "Hostname": "n", "gpu": "0", "UUID": "GPU-0", **labels}
    return ",".join(f'{name}="{value}"' for name, value in pairs.items())


def held(pod: str = "p", **labels: str) -> str:
    pod_labels = {"namespace": "ml", "pod": pod, "container": "c", "pod_uid": f"u-{pod}"}
    return f"podgpu_container_held_seconds_total{{{place(**pod_labels, **labels)}}}"


def accounted(**labels: str) -> str:
    return f"podgpu_device_accounted_seconds_total{{{place(**labels)}}}"


def over(rule: str, window: str = "3h") -> str:
    return f"sum(sum_over_time({rule}[{window}]))"


@dataclass(frozen=True, slots=True)
class Case:
    """Series, and values of expressions after 72 minutes."""

    series: Mapping[str, str]
    expected: Mapping[str, float]


STEADY = "0+15x600"
LATER = "_x40 "
"""Ten minutes without samples."""

CASES: Mapping[str, Case] = {
    "an hour of a steady counter is an hour": Case(
        {accounted(): STEADY, held(): STEADY},
        {over(HELD, "1h"): 3600, over(device_rule("accounted_seconds"), "1h"): 3600},
    ),
    "half a device counts half": Case(
        {accounted(): STEADY, held(): "0+7.5x600"}, {over(HELD, "1h"): 1800}
    ),
    "what a new container counted before its first sample counts": Case(
        {accounted(): STEADY, held(): f"{LATER}12+15x560"},
        {over(HELD): 12 + LAST - 600},
    ),
    "a pod that has ended before it was scraped counts once": Case(
        {accounted(): STEADY, held(): f"{LATER}0.3x20 stale"}, {over(HELD): 0.3}
    ),
    "a pod that is in a single sample counts once": Case(
        {accounted(): STEADY, held(): f"{LATER}0.3 stale"}, {over(HELD): 0.3}
    ),
    "a pod between two evaluations counts": Case(
        {accounted(): STEADY, held(): f"{LATER}_ _ 5 20 35 50 stale"}, {over(HELD): 50}
    ),
    "what was counted before the first sample of the device does not count": Case(
        {accounted(): f"{LATER}90000+15x560", held(): f"{LATER}80000+15x560"},
        {over(HELD): LAST - 600, over(device_rule("accounted_seconds")): LAST - 600},
    ),
    "a gap of 20 minutes after which the counter continues counts": Case(
        dict.fromkeys((accounted(), held()), "0+15x80 stale _x78 2400+15x440"),
        {over(HELD): LAST},
    ),
    "a gap of more than an hour does not count": Case(
        dict.fromkeys((accounted(), held()), "0+15x80 stale _x318 6000+15x200"),
        # Until 20 minutes, and from the first sample after the gap on.
        {over(HELD): 1200 + LAST - 6000},
    ),
    "a counter that was reset counts from 0": Case(
        # What it has counted since 19.5 minutes is lost when it is reset at 20 minutes.
        dict.fromkeys((accounted(), held()), "0+15x80 15+15x480"),
        {over(HELD): 19.5 * 60 + LAST - 1200},
    ),
    "another address that continues the account": Case(
        {
            accounted(): "0+15x80 stale",
            held(): "0+15x80 stale",
            accounted(instance="b"): "_x81 1215+15x480",
            held(instance="b"): "_x81 1215+15x480",
        },
        {over(HELD): LAST},
    ),
    "another address that begins at 0": Case(
        {
            accounted(): "0+15x80 stale",
            held(): "0+15x80 stale",
            accounted(instance="b"): "_x81 15+15x480",
            held(instance="b"): "_x81 15+15x480",
        },
        {over(HELD): LAST},
    ),
    "two podgpus on a node count once": Case(
        {
            accounted(): STEADY,
            held(): STEADY,
            accounted(instance="b"): STEADY,
            held(instance="b"): STEADY,
        },
        {over(HELD, "1h"): 3600, over(device_rule("accounted_seconds"), "1h"): 3600},
    ),
    "a pod that is shorter than the scrape interval beside a long one": Case(
        {accounted(): STEADY, held(): STEADY, held("q"): f"{LATER}0.3x20 stale"},
        {over(HELD + '{pod="q"}'): 0.3, over(HELD + '{pod="p"}', "1h"): 3600},
    ),
}


def info(pod: str, owner: str, phase: str = "Running") -> str:
    labels = f'namespace="ml",pod="{pod}",pod_uid="u-{pod}",phase="{phase}"'
    return f'podgpu_pod_info{{{labels},owner_kind="Job",owner_name="{owner}",Hostname="n"}}'


def instance(profile: str, model: str = "NVIDIA H100 80GB HBM3") -> Mapping[str, str]:
    """Return the series of a MIG instance that a pod holds."""
    labels = {"GPU_I_PROFILE": profile, "GPU_I_ID": "7", "GPU_CI_ID": "0"}
    device = f"podgpu_device_info{{{place(**labels, model=model)}}}"
    return {accounted(**labels): STEADY, held(**labels): STEADY, device: "1x600"}


PRICED = over(workload_rule("gpu_seconds"), "1h")
WORKLOADS: Mapping[str, Case] = {
    "pods of a workload are added, others have no workload": Case(
        {
            accounted(): STEADY,
            held("p"): "0+5x600",
            held("q"): "0+5x600",
            held("r"): "0+5x600",
            info("p", "train"): "1x600",
            info("q", "train"): "1x600",
        },
        {
            over(workload_rule("held_seconds") + '{owner_name="train"}', "1h"): 2400,
            over(workload_rule("held_seconds") + '{owner_name=""}', "1h"): 1200,
        },
    ),
    "the workload of a pod changes, or becomes known late": Case(
        {
            accounted(): STEADY,
            held("p"): STEADY,
            info("p", "", "Pending"): "1x480 stale",
            info("p", "train"): "_x481 1x500",
            held("q"): STEADY,
            info("q", "one"): "1x480 stale",
            info("q", "two"): "_x481 1x500",
        },
        {
            over(workload_rule("held_seconds"), "10m"): 1200,
            over(workload_rule("held_seconds") + '{owner_name="train"}', "10m"): 600,
            over(workload_rule("held_seconds") + '{owner_name=~"one|two"}', "10m"): 600,
        },
    ),
    "a GPU has its whole price": Case(
        {
            accounted(): STEADY,
            held(): STEADY,
            f"podgpu_device_info{{{place(model='NVIDIA H200')}}}": "1x600",
        },
        {PRICED: 3600, GPUS: 1},
    ),
    "2g.20gb is two of seven slices": Case(instance("2g.20gb"), {PRICED: 3600 * 2 / 7}),
    "1c.3g.40gb is one slice": Case(instance("1c.3g.40gb"), {PRICED: 3600 / 7}),
    "3g.40gb+me is three slices": Case(instance("3g.40gb+me"), {PRICED: 3600 * 3 / 7}),
    "7g.80gb is the GPU": Case(instance("7g.80gb"), {PRICED: 3600}),
    "an A30 has four slices": Case(instance("2g.12gb", "NVIDIA A30"), {PRICED: 1800}),
    "an A300 has seven": Case(instance("2g.12gb", "NVIDIA A300"), {PRICED: 3600 * 2 / 7}),
}


def of_owner(uid: str, **labels: str) -> str:
    """Return the held time of a job, or of a container without a pod."""
    names = place(namespace="", pod="", container="", pod_uid="", owner_uid=uid)
    own = ",".join(f'{name}="{value}"' for name, value in labels.items())
    names = names.replace(',container=""', "") if "container" in labels else names
    return f"podgpu_container_held_seconds_total{{{names},{own}}}"


def about(family: str, uid: str, **labels: str) -> str:
    pairs = {"owner_uid": uid, "Hostname": "n", **labels}
    written = ",".join(f'{name}="{value}"' for name, value in pairs.items())
    return f"{family}{{{written}}}"


def workload(kind: str, name: str) -> str:
    return over(
        f'{workload_rule("held_seconds")}{{namespace="",owner_kind="{kind}",owner_name="{name}"}}',
        "1h",
    )


JOBS: Mapping[str, Case] = {
    "jobs on one GPU have the workloads of their users": Case(
        {
            accounted(): STEADY,
            held(): "0+3x600",
            of_owner("slurm://c/7/1", hpc_job="7"): "0+6x600",
            of_owner("slurm://c/8/1", hpc_job="8"): "0+4x600",
            of_owner("slurm://c/9/1", hpc_job="9"): "0+2x600",
            about("podgpu_job_info", "slurm://c/7/1", hpc_job="7", user="alice"): "1x600",
            about("podgpu_job_info", "slurm://c/8/1", hpc_job="8", user="bob"): "1x600",
            about("podgpu_job_info", "slurm://c/9/1", hpc_job="9", user="alice"): "1x600",
        },
        {
            over(HELD, "1h"): 3600,
            f"count({HELD})": 4,
            over(workload_rule("held_seconds"), "1h"): 3600,
            f"count({workload_rule('held_seconds')})": 3,
            workload("User", "alice"): 8 * 240,
            workload("User", "bob"): 4 * 240,
        },
    ),
    "a job whose user is unknown is its own workload": Case(
        {
            accounted(): STEADY,
            of_owner("slurm://c/7/1", hpc_job="7"): STEADY,
            of_owner("slurm://c/8/1", hpc_job="8"): STEADY,
            about("podgpu_job_info", "slurm://c/7/1", hpc_job="7"): "1x600",
        },
        {workload("SlurmJob", "7"): 3600, workload("SlurmJob", "8"): 3600},
    ),
    "a job that was requeued is another owner": Case(
        {
            accounted(): STEADY,
            of_owner("slurm://c/7/1", hpc_job="7"): "0+15x80 stale",
            of_owner("slurm://c/7/2", hpc_job="7"): "_x120 0+15x400",
            about("podgpu_job_info", "slurm://c/7/1", hpc_job="7", user="alice"): "1x80 stale",
            about("podgpu_job_info", "slurm://c/7/2", hpc_job="7", user="alice"): "_x120 1x400",
        },
        {over(workload_rule("held_seconds") + '{owner_name="alice"}'): 1200 + 6000},
    ),
    "containers have the workload of their Compose project, or are their own": Case(
        {
            accounted(): STEADY,
            of_owner("docker://a", container="lab-web-1"): "0+6x600",
            of_owner("docker://b", container="lab-db-1"): "0+3x600",
            of_owner("podman://c", container="alone"): "0+6x600",
            about(
                "podgpu_podless_container_info",
                "docker://a",
                container="lab-web-1",
                compose_project="lab",
            ): "1x600",
            about(
                "podgpu_podless_container_info",
                "docker://b",
                container="lab-db-1",
                compose_project="lab",
            ): "1x600",
            about("podgpu_podless_container_info", "podman://c", container="alone"): "1x600",
        },
        {
            over(workload_rule("held_seconds"), "1h"): 3600,
            workload("ComposeProject", "lab"): 9 * 240,
            workload("Container", "alone"): 6 * 240,
        },
    ),
    "a job has its whole price": Case(
        {
            accounted(): STEADY,
            of_owner("slurm://c/7/1", hpc_job="7"): STEADY,
            f"podgpu_device_info{{{place(model='NVIDIA H200')}}}": "1x600",
        },
        {PRICED: 3600},
    ),
}


@pytest.fixture(params=["Debian's", "Prometheus 3's"])
def promtool(request: pytest.FixtureRequest) -> Path:
    if request.param == "Debian's":
        return debian.prometheus().promtool
    return peers.prometheus().promtool


def test_the_rules_are_well_formed(promtool: Path) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = sum(len(group["rules"]) for group in groups)
    assert f"SUCCESS: {rules} rules found" in run(promtool, "check", "rules", RULES)


def test_recorded_sums_are_what_the_counters_have_grown(promtool: Path, tmp_path: Path) -> None:
    cases = tmp_path / "tests.yaml"
    listed = [as_test(name, case) for name, case in {**CASES, **WORKLOADS, **JOBS}.items()]
    content = {"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": listed}
    cases.write_text(yaml.safe_dump(content))
    run(promtool, "test", "rules", cases)


def as_test(name: str, case: Case, interval: str = "15s", at: str = AFTER) -> dict[str, Any]:
    """Return a case as promtool reads it; values are compared to three decimals."""
    return {
        "name": name,
        "interval": interval,
        "input_series": [{"series": one, "values": values} for one, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": f"round(sum({expr}), 0.001)",
                "eval_time": at,
                "exp_samples": [{"labels": "{}", "value": round(value, 3)}],
            }
            for expr, value in case.expected.items()
        ],
    }
