"""A Slurm job and a Podman container that do known work on one GPU: real or simulated."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.container_daemon import IMAGE
from tests.e2e.podman_node import Podman, running_podman
from tests.e2e.processes import Process, wait_until
from tests.e2e.slurm_node import Slurm
from tests.fakes.nvml import FakeNvml, Load, Proc, Ramp, Scenario, h100s
from tests.gpu import driver_state, kernels
from tests.gpu.host_python import folders
from tests.gpu.usage import finished

USER: Final = "games"
"""The job's user, one of Debian other than root."""
_MIB: Final = 1 << 20
_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""The driver's device files besides those of GPUs."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an owner does on the GPU.

    Attributes:
        name: name of the container; of the job here and in Slurm.
        duty: the fraction of the time for which it works.
        seed: seed of the lengths of its bursts.
        mebibytes: memory that it allocates.
    """

    name: str
    duty: float
    seed: int
    mebibytes: int


JOB: Final = Work("train", 0.3, 1, 2048)
CONTAINER: Final = Work("serve", 0.5, 2, 4096)


@dataclass(frozen=True, slots=True)
class Setting:
    """The GPU, real or simulated.

    Attributes:
        gpu: its uuid.
        devices: its device file; empty for one that Slurm's test makes.
        scenario: the simulated GPU; None for a real one.
        alone: seconds of one pass without other load.
        podman: runs a Podman during a `with` block.
    """

    gpu: str
    devices: Sequence[Path]
    scenario: Scenario | None
    alone: float
    podman: Callable[[Path], AbstractContextManager[Podman]]


class HostPodman(Podman):
    """Podman with the device files of the machine."""

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        serve = (self._programs.podman, "system", "service", "--time", "0", f"unix://{self.socket}")
        self._service = Process(serve, self._folder / "podman.log", self.env)
        wait_until(self.socket.exists, "the socket of Podman")


def real(_folder: Path) -> Setting:
    """Return the machine's first GPU."""
    gpu, minor = next(iter(driver_state.gpus().items()))
    command = (sys.executable, kernels.__file__, "solo", "3")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60)
    devices = [Path(f"/dev/nvidia{minor}")]
    podman = lambda folder: running_podman(folder, HostPodman)  # noqa: E731
    return Setting(gpu, devices, None, float(done.stdout), podman)


def played(_folder: Path) -> Setting:
    """Return a simulated GPU."""
    values = {"energy": Ramp(5_000_000, 300_000), "memory_used": 8192 * _MIB}
    scenario = h100s(1, values=values)
    return Setting(scenario.gpus[0].uuid, (), scenario, 0.0, running_podman)


class Owners:
    """The job and the container.

    Args:
        setting: the GPU.
        slurm: runs the job.
        podman: runs the container.
        folder: existing folder for the output of their programs.

    Attributes:
        fake: the fake NVML of a simulated GPU.
        job: id of the job.
        image: name of the container's image.
    """

    image = IMAGE

    def __init__(self, setting: Setting, slurm: Slurm, podman: Podman, folder: Path) -> None:
        self.slurm = slurm
        self.podman = podman
        self.gpu = setting.gpu
        self.fake: FakeNvml | None = None
        self.job = ""
        self._setting = setting
        self._folder = folder
        self._pids: dict[str, int] = {}
        folder.chmod(0o777)  # the job's user writes its output there

    def start(self) -> None:
        """Start both, and wait until they work."""
        options = ("--gres=gpu:1", "--account=chem", f"--uid={USER}", "-J", JOB.name, "-D", "/tmp")
        self.job = self.slurm.submit(self._script(JOB), *options)
        self.podman("run", "--detach", *self._options(), IMAGE, "sh", "-c", self._script(CONTAINER))
        for work in (JOB, CONTAINER):
            wait_until(lambda one=work: self._begun(one), f"{work.name} works")  # type: ignore[misc]
        self._play()

    def _script(self, work: Work) -> str:
        if self._setting.scenario is not None:
            return f"echo 0 0 > {self._output(work)}; exec sleep 1000"
        words = f"work {work.duty:g} {work.seed} {work.mebibytes}"
        return (
            f"exec {sys.executable} {kernels.__file__} {words} "
            f"> {self._output(work)} 2> {self._output(work)}.err"
        )

    def _options(self) -> Iterator[str]:
        """Yield the options of the container."""
        yield from ("--name", CONTAINER.name, "--network=none", "--pids-limit=-1")
        yield f"--volume={self._folder}:{self._folder}"
        if self._setting.scenario is not None:
            yield self.podman.gpu(0)
            return
        nodes = (Path("/dev", name) for name in _NODES)
        for node in (*self._setting.devices, *(one for one in nodes if one.exists())):
            yield f"--device={node}"
        code = str(Path(kernels.__file__).parent)
        for folder in (*folders(), "/lib", "/lib64", code):
            if Path(folder).exists():
                yield f"--volume={folder}:{folder}:ro"
        if libraries := os.environ.get("LD_LIBRARY_PATH"):
            yield f"--env=LD_LIBRARY_PATH={libraries}"

    def _output(self, work: Work) -> Path:
        return self._folder / f"{work.name}.txt"

    def _begun(self, work: Work) -> bool:
        errors = Path(f"{self._output(work)}.err")
        if errors.exists() and (text := errors.read_text()):
            raise RuntimeError(f"{work.name}: {text[-2000:]}")
        return self._output(work).exists() and bool(self._output(work).read_text())

    def pid(self, work: Work) -> int:
        """Return the process of the job or the container that works; the same after its end."""
        if work.name not in self._pids:
            name = "sleep" if self._setting.scenario is not None else Path(sys.executable).name
            self._pids[work.name] = (
                self.podman.pid(work.name)
                if work is CONTAINER
                else wait_until(lambda: self.slurm.pids(self.job, name, 1), "the job's process")[0]
            )
        return self._pids[work.name]

    def share(self, work: Work, begin: float, end: float) -> float:
        """Return the fraction of the time between two times for which it kept the GPU busy."""
        if self._setting.scenario is not None:
            return work.duty
        lines = self._output(work).read_text().splitlines()[:-1]  # the last may be incomplete
        passes = [(float(at), int(done)) for at, done in map(str.split, lines)]
        return finished(passes, begin, end) * self._setting.alone / (end - begin)

    def driver_average(self, seconds: int) -> dict[str, dict[str, Any]]:
        """Wait; return the means of `nvidia-smi pmon` by pid meanwhile, without simulated ones."""
        end = time.monotonic() + seconds
        output = ""
        if self._setting.scenario is None:
            command = ("nvidia-smi", "pmon", "-c", str(seconds), "-s", "um")
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=seconds + 20
            )
            output = done.stdout
            (self._folder / "pmon.txt").write_text(output + done.stderr)
        time.sleep(max(0.0, end - time.monotonic()))
        return pmon(output)

    def _play(self, *works: Work) -> None:
        if self.fake is None:
            return
        shown = works or (JOB, CONTAINER)
        scenario, start = self.fake.scenario, 0.0
        processes = [Proc(self.pid(work), work.mebibytes * _MIB) for work in shown]
        loads = [Load(self.pid(work), 100 * work.duty, start=start) for work in shown]
        self.fake.set(scenario.with_gpu(0, processes=processes, loads=loads))

    def end_job(self) -> None:
        """Cancel the job."""
        self.slurm.cancel(self.job)
        self._play(CONTAINER)

    def end_container(self) -> None:
        """End the container."""
        self.podman("kill", CONTAINER.name)
        if self.fake is not None:
            self.fake.set(self.fake.scenario.with_gpu(0, processes=[], loads=[]))


def pmon(text: str) -> dict[str, dict[str, Any]]:
    """Return the means of the output of `nvidia-smi pmon -s um` by pid.

    Returns:
        the number of samples with the process; the mean utilisation in percent, where `-` is 0; and
        the mean memory in MiB.
    """
    lines = [line.split() for line in text.splitlines()]
    names = next((line[1:] for line in lines if line[:2] == ["#", "gpu"]), [])
    found: dict[str, list[dict[str, str]]] = {}
    for line in lines:
        if names and line and line[0] != "#":
            row = dict(zip(names, line, strict=False))
            found.setdefault(row["pid"], []).append(row)
    return {
        pid: {
            "samples": len(rows),
            "sm_percent": round(sum(_number(row["sm"]) for row in rows) / len(rows), 2),
            "mib": round(sum(_number(row["fb"]) for row in rows) / len(rows)),
        }
        for pid, rows in found.items()
        if pid != "-"
    }


def _number(text: str) -> float:
    return 0.0 if text == "-" else float(text)
