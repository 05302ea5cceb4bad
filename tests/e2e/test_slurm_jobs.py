"""Jobs of a real Slurm hold GPUs: holders, parts of shared GPUs, usage, XID errors, reports."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.node import PODGPU
from tests.e2e.podgpu import Podgpu
from tests.e2e.processes import wait_until
from tests.e2e.slurm_node import CLUSTER, GPUS, SHARDS, Slurm
from tests.fakes.nvml import Load, Proc, h100s

READING = "DCGM_FI_DEV_POWER_USAGE"
BUSY = "podgpu_container_busy_seconds_total"
FOREVER = "sleep 600"
USER = "games"
"""A user of Debian other than root."""


class SlurmPodgpu(Podgpu):
    """A podgpu that follows the jobs of a Slurm, and the simulated processes on its GPUs."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        super().__init__(folder, h100s(GPUS))
        self.slurm = slurm
        self.ledger = folder / "usage.db"
        libraries = ":".join(env["LD_LIBRARY_PATH"] for env in (self.env, slurm.env))
        self.env = {
            **self.env,
            **slurm.env,
            "LD_LIBRARY_PATH": libraries,
            "PATH": f"{slurm.scontrol.parent}:/usr/bin:/bin",
        }
        gpus = {"kind": "nvml", "interval": "500ms", "usage_interval": "1s"}
        sources = {"gpus": gpus, "jobs": {"kind": "slurm", "interval": "1s"}}
        self.configure(slurm.node, sources, {"usage": {"kind": "ledger", "path": str(self.ledger)}})

    def jobs(self) -> list[set[str]]:
        """Return the jobs that hold each GPU."""
        found: list[set[str]] = [set() for _ in range(GPUS)]
        for labels, _ in self.of("podgpu_device_holder_info"):
            found[int(labels["gpu"])].add(labels["hpc_job"])
        return found

    def wait_for(self, *held: set[str]) -> None:
        """Wait until the GPUs are held by exactly these jobs."""
        expected = [*held, *([set()] * (GPUS - len(held)))]
        wait_until(lambda: self.jobs() == expected, f"jobs {expected}")

    def names(self, gpu: int) -> dict[str, str]:
        """Return the labels of a GPU's reading that name its job, without empty ones."""
        names = ("hpc_job", "user", "account", "partition", "pod", "namespace", "container")
        ((labels, _),) = self.of(READING, gpu=str(gpu))
        return {name: labels[name] for name in names if labels.get(name)}

    def work(self, gpu: int, *pids: int) -> None:
        """Simulate that processes use a GPU."""
        assert self.fake is not None
        scenario = self.fake.scenario
        processes, loads = [Proc(pid) for pid in pids], [Load(pid) for pid in pids]
        changed = replace(scenario.gpus[gpu], processes=processes, loads=loads)
        gpus = [changed if place == gpu else one for place, one in enumerate(scenario.gpus)]
        self.fake.set(replace(scenario, gpus=gpus))

    def usage(self, by: str) -> dict[str, float]:
        """Return the held seconds by user or by account in the report."""
        command = (PODGPU, "usage", "--ledger", self.ledger, "--by", by, "--format", "json")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        return {row[by]: row["held_seconds"] for row in rows}


@pytest.fixture
def podgpu(slurm: Slurm, tmp_path: Path) -> Iterator[SlurmPodgpu]:
    with SlurmPodgpu(slurm, tmp_path).running() as started:
        started.wait_for()
        yield started
        assert "Traceback" not in started.output()
        slurm.cancel("--partition=batch")
        wait_until(lambda: not slurm.command("squeue", "-h"), "the end of all jobs")


def test_a_job_holds_its_gpus_while_it_runs(slurm: Slurm, podgpu: SlurmPodgpu) -> None:
    job = slurm.submit(FOREVER, "--gres=gpu:2", "--account=chem", f"--uid={USER}", "-J", "a b=c")
    podgpu.wait_for({job}, {job})
    facts = {"hpc_job": job, "user": USER, "account": "chem", "partition": "batch"}
    assert podgpu.names(0) == podgpu.names(1) == facts
    ((holder, _),) = podgpu.of("podgpu_device_holder_info", gpu="1")
    assert holder["owner_uid"].startswith(f"slurm://{CLUSTER}/{job}/")
    assert (holder["evidence"], holder["source"]) == ("job_allocation", "jobs")
    assert podgpu.value("podgpu_device_holder_share", gpu="1") == 1
    ((described, _),) = podgpu.of("podgpu_job_info")
    assert (described["user"], described["job_name"]) == (USER, "a b=c")
    other = slurm.submit(FOREVER, "--gres=gpu:1")
    podgpu.wait_for({job}, {job}, {other})
    slurm.cancel(job)
    podgpu.wait_for(set(), set(), {other})
    assert podgpu.names(0) == {}


def test_tasks_of_an_array_and_steps(slurm: Slurm, podgpu: SlurmPodgpu) -> None:
    step = f"{slurm.scontrol.parent}/srun --overlap {FOREVER} &"
    array = slurm.submit(f"{step} {step} wait", "--array=1-2", "--gres=gpu:1")
    wait_until(lambda: sum(len(jobs) for jobs in podgpu.jobs()) == 2, "two tasks")
    assert len(set.union(*podgpu.jobs())) == 2
    assert array in set.union(*podgpu.jobs())
    slurm.cancel(f"{array}_1")
    wait_until(lambda: sum(len(jobs) for jobs in podgpu.jobs()) == 1, "one task")


def test_jobs_that_share_a_gpu_have_their_parts(slurm: Slurm, podgpu: SlurmPodgpu) -> None:
    first = slurm.submit(f"{FOREVER} & {FOREVER}", "--gres=shard:1")
    second = slurm.submit(FOREVER, f"--gres=shard:{SHARDS // 2}")
    podgpu.wait_for({first, second})
    shares = podgpu.of("podgpu_device_holder_share", gpu="0")
    assert {labels["hpc_job"]: part for labels, part in shares} == {
        first: 1 / SHARDS,
        second: 0.5,
    }
    pids = wait_until(lambda: slurm.pids(first, "sleep", 2), "the processes of the first job")
    podgpu.work(0, *pids, *wait_until(lambda: slurm.pids(second, "sleep", 1), "the process"))
    wait_until(lambda: (podgpu.value(BUSY, gpu="0", hpc_job=second) or 0) > 1, "busy time")
    busy = {labels["hpc_job"]: value for labels, value in podgpu.of(BUSY, gpu="0")}
    assert busy[first] == pytest.approx(2 * busy[second], rel=0.2)
    assert podgpu.fake is not None
    podgpu.fake.push_xid(0, 31)
    errors = "podgpu_container_xid_errors_total"
    for job in (first, second):
        podgpu.wait_value(errors, 1, gpu="0", hpc_job=job, xid="31")


def test_a_job_that_is_killed_holds_nothing(slurm: Slurm, podgpu: SlurmPodgpu) -> None:
    job = slurm.submit("kill -STOP $$", "--gres=gpu:1")
    podgpu.wait_for({job})
    slurm.cancel("--signal=KILL", "--full", job)
    podgpu.wait_for()


def test_jobs_stay_while_slurmctld_is_restarted(slurm: Slurm, podgpu: SlurmPodgpu) -> None:
    job = slurm.submit(FOREVER, "--gres=gpu:1")
    ending = slurm.submit("sleep 3", "--gres=gpu:1")
    podgpu.wait_for({job}, {ending})
    slurm.stop_controller()
    # The second job ends, but its GPU is not free before slurmctld knows that.
    podgpu.stays(lambda: podgpu.jobs() == [{job}, {ending}, set(), set()], 4)
    assert podgpu.value("podgpu_source_up", source="jobs") == 1
    slurm.start_controller()
    podgpu.wait_for({job})
    later = slurm.submit(FOREVER, "--gres=gpu:1")
    wait_until(lambda: {later} in podgpu.jobs(), "the new job", 60)
    assert podgpu.jobs()[0] == {job}


def test_reports_by_user_and_account(slurm: Slurm, podgpu: SlurmPodgpu) -> None:
    first = slurm.submit(FOREVER, "--gres=gpu:2", "--account=chem", f"--uid={USER}")
    second = slurm.submit(FOREVER, "--gres=gpu:1", "--account=physics")
    podgpu.wait_for({first}, {first}, {second})
    held = "podgpu_container_held_seconds_total"
    wait_until(lambda: (podgpu.value(held, gpu="2", hpc_job=second) or 0) > 3, "held time")
    slurm.cancel(first, second)
    podgpu.wait_for()
    podgpu.stop()
    by_user, by_account = podgpu.usage("user"), podgpu.usage("account")
    assert by_user[USER] == pytest.approx(by_account["chem"])
    assert by_user["root"] == pytest.approx(by_account["physics"])
    assert by_user[USER] == pytest.approx(2 * by_user["root"], rel=0.3)
    podgpu.start()
