"""Slurm's prolog and epilog list jobs in files, and the page shows them as dcgm-exporter does."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.processes import Process, free_ports, wait_until
from tests.e2e.slurm_node import GPUS, Slurm
from tests.fakes.nvml import FakeNvml, h100s

FOREVER = "sleep 600"
Jobs = dict[str, set[str]]
"""Ids of jobs by GPU; of a GPU without jobs an empty set."""

ROOT = Path(__file__).resolve().parents[2]


class Page:
    """The page of a podgpu with dcgm-exporter's command line."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        (self.port,) = free_ports(1)
        options = ("-a", f"127.0.0.1:{self.port}", "-c", "200", "--hpc-job-mapping-dir", slurm.jobs)
        self.process = Process(
            [sys.executable, "-m", "podgpu", "dcgm-exporter", *options],
            folder / "podgpu.log",
            {**FakeNvml(h100s(GPUS), folder).env(), "PYTHONPATH": str(ROOT)},
        )
        self.slurm = slurm

    def jobs(self) -> Jobs:
        """Return the jobs of each GPU; assert that each of DCGM's families has the same ones."""
        answer = self.process.wait_for_answer(self.port, "/metrics")
        found: list[Jobs] = []
        for family in text_string_to_metric_families(answer.body.decode()):
            if family.name.startswith("DCGM_FI_DEV_"):
                jobs: Jobs = {}
                for sample in family.samples:
                    job = sample.labels.get("hpc_job")
                    jobs.setdefault(sample.labels["gpu"], set()).update({job} if job else ())
                found.append(jobs)
        assert all(jobs == found[0] for jobs in found)
        return found[0] if found else {}

    def wait_for(self, **jobs: set[str]) -> None:
        """Wait until exactly these GPUs have jobs, named `gpu0`, `gpu1`, ..."""
        expected = {str(gpu): jobs.get(f"gpu{gpu}", set()) for gpu in range(GPUS)}
        wait_until(lambda: self.jobs() == expected, f"jobs {expected}", 60)


@pytest.fixture
def page(slurm: Slurm, tmp_path: Path) -> Iterator[Page]:
    page = Page(slurm, tmp_path)
    try:
        page.wait_for()
        yield page
    finally:
        status = page.process.stop()
        slurm.cancel("--partition=batch")
        wait_until(lambda: not slurm.command("squeue", "-h"), "the end of all jobs")
    assert status == 0, page.process.output()
    assert "Traceback" not in page.process.output()


def test_a_job_is_shown_while_it_has_gpus(slurm: Slurm, page: Page) -> None:
    first = slurm.submit(FOREVER, "--gres=gpu:2")
    page.wait_for(gpu0={first}, gpu1={first})
    second = slurm.submit(FOREVER, "--gres=gpu:1")
    page.wait_for(gpu0={first}, gpu1={first}, gpu2={second})
    slurm.cancel(first)
    page.wait_for(gpu2={second})
    short = slurm.submit("true", "--gres=gpu:1")
    slurm.wait_for(short, "COMPLETED")
    page.wait_for(gpu2={second})
    without_gpu = slurm.submit(FOREVER)
    slurm.wait_for(without_gpu, "RUNNING")
    page.wait_for(gpu2={second})


def test_each_task_of_an_array_is_a_job(slurm: Slurm, page: Page) -> None:
    array = slurm.submit(FOREVER, "--array=7-9", "--gres=gpu:1")

    def ids() -> set[str]:
        listed = slurm.command("squeue", "-h", "-t", "RUNNING", "-o", "%A") or ""
        return set(listed.split())

    tasks = wait_until(lambda: found if len(found := ids()) == 3 else None, "three tasks")
    wait_until(lambda: set.union(*page.jobs().values()) == tasks, "each task on the page")
    assert sorted(len(jobs) for jobs in page.jobs().values()) == [0, 1, 1, 1]
    slurm.cancel(f"{array}_8")
    wait_until(lambda: set.union(*page.jobs().values()) == ids(), "two tasks")
    assert len(ids()) == 2


def test_jobs_that_share_a_gpu_have_a_series_each(slurm: Slurm, page: Page) -> None:
    first, second = (slurm.submit(FOREVER, "--gres=shard:1") for _ in range(2))
    page.wait_for(gpu0={first, second})
    slurm.cancel(first)
    page.wait_for(gpu0={second})


def test_a_job_that_is_killed_is_removed(slurm: Slurm, page: Page) -> None:
    job = slurm.submit("kill -STOP $$", "--gres=gpu:1")
    page.wait_for(gpu0={job})
    slurm.cancel("--signal=KILL", "--full", job)
    page.wait_for()
    slurm.wait_for(job, "CANCELLED" if slurm.state(job) == "CANCELLED" else "FAILED")


def test_jobs_stay_while_slurmctld_is_restarted(slurm: Slurm, page: Page) -> None:
    job = slurm.submit(FOREVER, "--gres=gpu:1")
    ending = slurm.submit("sleep 2", "--gres=gpu:1")
    page.wait_for(gpu0={job}, gpu1={ending})
    slurm.stop_controller()
    time.sleep(3)  # the second job ends, but slurmd runs its epilog only for slurmctld
    page.wait_for(gpu0={job}, gpu1={ending})
    slurm.start_controller()
    page.wait_for(gpu0={job})
