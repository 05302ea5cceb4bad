"""Which jobs are found in the cgroups of both versions."""

from pathlib import Path

import pytest

from sources.slurm import job_cgroups
from tests.sources.slurm.recorded import start, version_1, version_2


def test_jobs_of_version_1_are_found(tmp_path: Path) -> None:
    node = version_1(tmp_path)
    groups = {"4": start(node, "4"), "5": start(node, "5", user="uid_0")}
    (node / "uid_0" / "step_0").mkdir()
    found = job_cgroups.read(tmp_path)
    assert (found.version, found.found, found.nodes) == (1, True, ("node1",))
    assert found.jobs == {job: group.stat().st_ino for job, group in groups.items()}
    assert {node, node / "uid_0", node / "uid_1000"} < set(job_cgroups.folders(tmp_path))


@pytest.mark.parametrize(("prefix", "names"), [("", ()), ("gpu-1_", ("gpu-1",))])
def test_jobs_of_version_2_are_found(tmp_path: Path, prefix: str, names: tuple[str, ...]) -> None:
    node = version_2(tmp_path, prefix)
    start(node, "12", user="")
    found = job_cgroups.read(tmp_path)
    assert (found.version, found.found, found.nodes, [*found.jobs]) == (2, True, names, ["12"])
    assert node in job_cgroups.folders(tmp_path)


def test_a_node_without_its_name_in_the_cgroups(tmp_path: Path) -> None:
    start(version_1(tmp_path, ""), "4")
    found = job_cgroups.read(tmp_path, "gpu1")
    assert (found.nodes, [*found.jobs]) == ((), ["4"])


def test_jobs_of_another_node_on_this_host_are_ignored(tmp_path: Path) -> None:
    start(version_1(tmp_path), "4")
    start(version_1(tmp_path, "_node2"), "5")
    assert [*job_cgroups.read(tmp_path, "node2").jobs] == ["5"]


def test_of_several_nodes_on_this_host_those_with_jobs_are_named(tmp_path: Path) -> None:
    """A folder of a former name of the node stays until the machine is restarted."""
    for name in ("old", "node1", "node2"):
        version_1(tmp_path, f"_{name}")
    assert job_cgroups.read(tmp_path).nodes == ("node1", "node2", "old")
    start(version_1(tmp_path, "_node2"), "4")
    assert job_cgroups.read(tmp_path).nodes == ("node2",)
    start(version_1(tmp_path, "_node1"), "5")
    assert job_cgroups.read(tmp_path).nodes == ("node1", "node2")


def test_a_job_without_processes_is_empty(tmp_path: Path) -> None:
    node = version_1(tmp_path)
    start(node, "4", processes="")
    start(node, "5")
    assert job_cgroups.read(tmp_path).empty == {"4"}


def test_slurm_may_have_no_cgroups_yet(tmp_path: Path) -> None:
    version_1(tmp_path).rmdir()
    found = job_cgroups.read(tmp_path)
    assert (found.found, found.jobs) == (False, {})


def test_other_names_are_no_jobs(tmp_path: Path) -> None:
    node = version_1(tmp_path)
    for name in ("job_", "job_x", "job_0", "job_12345678901", "step_1"):
        (node / "uid_0" / name).mkdir(parents=True)
    assert job_cgroups.read(tmp_path).jobs == {}


def test_cgroups_that_are_not_mounted_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="freezer"):
        job_cgroups.read(tmp_path)
