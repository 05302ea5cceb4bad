"""The checks `slurm.cgroups`, `slurm.scontrol` and `slurm.cluster`."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sources.slurm.doctor import examine
from sources.slurm.options import Options
from tests.podgpu.doctor.support import context, is_bad
from tests.sources.slurm import recorded


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = recorded.scontrol(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    recorded.start(recorded.version_1(tmp_path / "cgroup"), "7")
    return tmp_path / "slurm"


async def findings(tmp_path: Path) -> dict[str, Finding]:
    found = await examine(Options(cgroups=tmp_path / "cgroup"), context(tmp_path))
    return {one.check: one for one in found}


async def test_a_node_where_all_is_set(tmp_path: Path, answers: Path) -> None:
    found = await findings(tmp_path)
    assert {one.verdict for one in found.values()} == {Verdict.OK}
    assert found["slurm.cgroups"].observed == "version 1, 1 jobs"
    assert found["slurm.scontrol"].observed == "Slurm 22.05.8, cluster lab"
    assert answers.exists()


async def test_cgroups_that_are_not_mounted_are_a_failure(tmp_path: Path, answers: Path) -> None:
    (tmp_path / "cgroup").rename(answers / "moved")
    finding = (await findings(tmp_path))["slurm.cgroups"]
    is_bad(finding, "failure", "freezer", "mount the host's cgroups")


async def test_slurm_without_cgroups_is_a_warning(tmp_path: Path, answers: Path) -> None:
    (tmp_path / "cgroup" / "freezer" / "slurm_node1").rename(answers / "moved")
    finding = (await findings(tmp_path))["slurm.cgroups"]
    is_bad(finding, "warning", "no cgroups of version 1", "ProctrackType=proctrack/cgroup")


async def test_a_controller_that_does_not_answer_is_a_failure(
    tmp_path: Path, answers: Path
) -> None:
    (answers / "down").touch()
    finding = (await findings(tmp_path))["slurm.scontrol"]
    is_bad(finding, "failure", "Unable to contact slurm controller", "slurmctld runs")


@pytest.mark.parametrize(
    ("set_to", "verdict", "observed"),
    [
        ("ProctrackType = proctrack/linuxproc", "failure", "jobs have no cgroups"),
        ("PrologFlags = Alloc", "warning", "salloc"),
        ("AccountingStorageType = accounting_storage/none", "warning", "there is no accounting"),
    ],
)
async def test_settings_of_the_cluster_that_matter(
    tmp_path: Path, answers: Path, set_to: str, verdict: str, observed: str
) -> None:
    """`slurm.cluster` is a failure or a warning."""
    setting = set_to.partition(" ")[0]
    lines = recorded.CONFIG.splitlines(keepends=True)
    changed = [f"{set_to}\n" if one.startswith(setting) else one for one in lines]
    (answers / "config").write_text("".join(changed))
    is_bad((await findings(tmp_path))["slurm.cluster"], verdict, observed, f"set {setting}=")
