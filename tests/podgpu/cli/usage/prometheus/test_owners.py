"""Jobs of Slurm and containers without pods in reports from a server."""

from collections.abc import Mapping

import pytest

from tests.podgpu.cli.usage.prometheus.api_server import serving
from tests.podgpu.cli.usage.prometheus.recorded_world import RECORDED, Hour, Owner
from tests.podgpu.cli.usage.prometheus.test_reader import read, report, world

DAY = 24 * 3600 * 10**9


def job(number: str, part: float, user: str) -> Owner:
    labels = {"hpc_job": number, "owner_uid": f"slurm://hpc/{number}/1800000000"}
    return Owner(part, labels, {"owner_uid": labels["owner_uid"], "user": user} if user else {})


def container(name: str, part: float, project: str) -> Owner:
    """Return a container; the counters have its name, which the rules keep."""
    uid = f"docker://{name}"
    info = {"owner_uid": uid, "container": name}
    return Owner(
        part,
        {"container": name, "owner_uid": uid},
        {**info, "compose_project": project} if project else info,
    )


OWNERS = (
    job("7", 0.25, "alice"),
    job("8", 0.125, "alice"),
    job("9", 0.125, ""),
    container("lab-web-1", 0.25, "lab"),
    container("alone", 0.25, ""),
)


@pytest.mark.parametrize("hour", [RECORDED, Hour(counted=True)], ids=["records", "counters"])
@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            "pod",
            {
                "job 7": 0.25,
                "job 8": 0.125,
                "job 9": 0.125,
                "container lab-web-1": 0.25,
                "container alone": 0.25,
            },
        ),
        (
            "workload",
            {
                "User/alice": 0.375,
                "SlurmJob/9": 0.125,
                "ComposeProject/lab": 0.25,
                "Container/alone": 0.25,
            },
        ),
    ],
)
def test_each_has_the_name_that_a_ledger_reports(
    hour: Hour, by: str, expected: Mapping[str, float]
) -> None:
    with serving(world(dict.fromkeys(range(24), hour), owners=OWNERS).answer) as server:
        found = report(read(server, 24, by), by)
    held = {row.key.name: row.held_ns for row in found.rows if row.key is not None}
    assert held == {name: part * DAY / 2 for name, part in expected.items()}
    assert sum(held.values()) == found.total.held_ns == DAY // 2
