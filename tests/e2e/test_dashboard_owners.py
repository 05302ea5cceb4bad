"""The dashboard of one node has a row or line of its own for each pod, job and container.

promtool of Debian and of Prometheus 3 evaluates its queries. Samples are a minute apart.
"""

from pathlib import Path

import yaml

from tests.deploy.dashboards import filled, queries
from tests.e2e.test_alerts import run
from tests.e2e.test_recording_rules import promtool

__all__ = ["promtool"]

DEVICE = 'UUID="GPU-0",gpu="0",Hostname="n"'
OWNERS = (
    'namespace="ml",pod="p",container="c",pod_uid="u"',
    'hpc_job="1",owner_uid="slurm://c/1/1"',
    'hpc_job="2",owner_uid="slurm://c/2/1"',
    'container="web",owner_uid="docker://a"',
)
SERIES = {
    f'podgpu_xid_last_seen_timestamp_seconds{{{DEVICE},xid="31"}}': "_x3 180x20",
    **{
        f"{metric}{{{DEVICE},{owner}{more}}}": values
        for owner in OWNERS
        for metric, more, values in (
            ("podgpu_container_xid_errors_total", ',xid="31"', "_x3 1x20"),
            ("podgpu_device_holder_since_timestamp_seconds", ',source="s",evidence="e"', "5x20"),
            ("podgpu_container_busy_seconds_total", "", "0+15x20"),
            ("podgpu_container_energy_joules_total", "", "0+15x20"),
            ("podgpu_container_memory_used_bytes", "", "5x20"),
        )
    },
}
PANELS = {
    "Holders",
    "XID errors by container",
    "Busy time by container",
    "Memory by container",
    "Power by container",
}


def test_owners_that_share_a_gpu_are_shown_apart(promtool: Path, tmp_path: Path) -> None:
    values = {"node": "n", "gpu": ".*", "instance": ".*"}
    listed = [
        {
            "expr": f"count({filled(query.expr, values, 240)})",
            "eval_time": "10m",
            "exp_samples": [{"labels": "{}", "value": len(OWNERS)}],
        }
        for query in queries()
        if (query.dashboard, query.name) == ("node", "A") and query.panel in PANELS
    ]
    assert len(listed) == len(PANELS)
    inputs = [{"series": series, "values": found} for series, found in SERIES.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": listed}
    cases = tmp_path / "tests.yaml"
    cases.write_text(
        yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [test]})
    )
    run(promtool, "test", "rules", cases)
