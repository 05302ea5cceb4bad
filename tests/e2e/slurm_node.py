"""A real Slurm on loopback: munged, slurmctld and slurmd of one node with GPUs.

The GPUs are device files of the test, or of the machine. Slurm allocates them, and keeps jobs from
opening the others. The node's cgroups have its name, so that runs at the same time do not meet.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e import debian
from tests.e2e.processes import Process, free_ports, wait_until

CLUSTER: Final = "lab"
GPUS: Final = 4
SHARDS: Final = 4
"""Number of shards of each GPU."""

_NVIDIA: Final = 195
"""Major number of the driver's device files."""

_DEPLOYED: Final = Path(__file__).resolve().parents[2] / "deploy" / "slurm"

_CGROUPS_ROOT: Final = Path("/sys/fs/cgroup")
_VERSION: Final = 2 if (_CGROUPS_ROOT / "cgroup.controllers").exists() else 1
_SLICE: Final = _CGROUPS_ROOT / "system.slice"
"""The cgroup of services, which systemd would make."""

_CONFIG: Final = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
PluginDir={plugins}
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,shard
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
KillWait=2
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
ReturnToService=2
SlurmdParameters=config_overrides
PrologFlags=Contain
Prolog={folder}/prolog
Epilog={folder}/epilog
NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 CPUs=32 Gres=gpu:{gpus},shard:{shards}
PartitionName=batch Nodes={node} Default=YES State=UP MaxTime=INFINITE
PartitionName=debug Nodes={node} State=UP MaxTime=INFINITE
"""
_GPU: Final = "Name=gpu File={device}\n"
_SHARDS: Final = "Name=shard Count={shards}\n"
_CGROUPS: Final = "IgnoreSystemd=yes\nConstrainDevices=yes\nConstrainCores=no\n"
_SCRIPT: Final = "#!/bin/sh\nGPU_JOBS_DIR={folder}/gpu-jobs exec {script}\n"


class Slurm:
    """A cluster of one node.

    Args:
        folder: existing folder for its files.
        devices: device files of the machine's GPUs; without them, the test makes its own.

    Attributes:
        node: name of the node.
        jobs: the folder in which prolog and epilog list the jobs of each GPU.
        env: the variables that Slurm's commands need.
    """

    def __init__(self, folder: Path, devices: Sequence[Path] = ()) -> None:
        self._programs = debian.slurm()
        self._folder = folder
        self._devices = devices or [folder / "dev" / f"nvidia{at}" for at in range(GPUS)]
        self._makes_devices = not devices
        self.node = f"gpu{os.getpid()}"
        self.jobs = folder / "gpu-jobs"
        self.env = {**self._programs.env, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, Process] = {}
        self._configure()

    @property
    def scontrol(self) -> Path:
        """The program `scontrol`."""
        return self._programs.bin / "scontrol"

    def _configure(self) -> None:
        folder = self._folder
        controller_port, node_port = free_ports(2)
        values = {
            "cluster": CLUSTER,
            "host": socket.gethostname(),
            "controller_port": controller_port,
            "node_port": node_port,
            "folder": folder,
            "plugins": self._programs.plugins,
            "node": self.node,
            "gpus": len(self._devices),
            "shards": len(self._devices) * SHARDS,
        }
        gpus = [_GPU.format(device=device) for device in self._devices]
        for name, text in (
            ("slurm.conf", _CONFIG),
            ("gres.conf", "".join([*gpus, _SHARDS])),
            ("cgroup.conf", _CGROUPS),
        ):
            (folder / name).write_text(text.format(**values))
        for name in ("state", "spool", "dev", "gpu-jobs"):
            (folder / name).mkdir()
        for number, device in enumerate(self._devices if self._makes_devices else ()):
            os.mknod(device, 0o20666, os.makedev(_NVIDIA, number))
        for name in ("prolog", "epilog"):
            script = folder / name
            script.write_text(_SCRIPT.format(folder=folder, script=_DEPLOYED / name))
            script.chmod(0o755)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def start(self) -> None:
        """Start the daemons, and wait until the node accepts jobs."""
        folder, sbin = self._folder, self._programs.sbin
        files = {
            "key-file": "munge.key",
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "seed-file": "munged.seed",
            "log-file": "munged.log",
        }
        options = [f"--{option}={folder / name}" for option, name in files.items()]
        self._run("munged", sbin / "munged", "--foreground", "--force", *options)
        wait_until((folder / "munge.socket").exists, "munged")
        self.start_controller(first=True)
        if _VERSION == 2:
            _SLICE.mkdir(exist_ok=True)
        stepd = sbin / "slurmstepd"
        self._run("slurmd", sbin / "slurmd", "-D", "-N", self.node, "-d", stepd)
        shown = ("scontrol", "show", "node", self.node)
        wait_until(lambda: "State=IDLE " in (self.command(*shown) or ""), "an idle node")

    def start_controller(self, *, first: bool = False) -> None:
        """Start slurmctld; it continues with its saved state unless it is the first start."""
        self._run("slurmctld", self._programs.sbin / "slurmctld", "-D", *(["-i"] if first else []))
        wait_until(lambda: "UP" in (self.command("scontrol", "ping") or ""), "slurmctld")

    def stop_controller(self) -> None:
        """Stop slurmctld; jobs continue."""
        self._daemons.pop("slurmctld").stop()

    def _run(self, name: str, *command: str | Path) -> None:
        log = self._folder / f"{name}.out"
        self._daemons[name] = Process(command, log, self.env)

    def command(self, name: str, *words: str) -> str | None:
        """Run a command of Slurm and return its output; None if it failed."""
        done = subprocess.run(
            [self._programs.bin / name, *words],
            env={**os.environ, **self.env},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        return done.stdout.strip() if done.returncode == 0 else None

    def submit(self, script: str, *options: str) -> str:
        """Submit a job and return its id; of an array the id of the array."""
        number = self.command("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script)
        assert number, self.output()
        return number

    def wait_for(self, job: str, state: str) -> None:
        """Wait until a job has a state, such as `RUNNING`."""
        wait_until(lambda: self.state(job) == state, f"job {job} is {state}, not {self.state(job)}")

    def state(self, job: str) -> str:
        """Return the state of a job; empty if slurmctld does not know it."""
        found = re.search(r"JobState=(\w+)", self.command("scontrol", "show", "job", job) or "")
        return found[1] if found else ""

    def pids(self, job: str, program: str, count: int) -> list[int]:
        """Return the processes of a job's script that run a program, if there are so many."""
        found: list[int] = []
        script = f"uid_*/job_{job}/step_batch" if _VERSION == 1 else f"job_{job}/step_batch"
        for procs in self._tree.glob(f"{script}/**/cgroup.procs"):
            for pid in procs.read_text().split():
                with contextlib.suppress(OSError):
                    if Path("/proc", pid, "comm").read_text() == f"{program}\n":
                        found.append(int(pid))
        return found if len(found) == count else []

    def cancel(self, *words: str) -> None:
        """Cancel jobs."""
        self.command("scancel", *words)

    def output(self) -> str:
        return "\n".join(
            f"{name}:\n{daemon.output()[-3000:]}" for name, daemon in self._daemons.items()
        )

    def stop(self) -> None:
        """End all jobs, stop the daemons, and remove the node's cgroups."""
        if "slurmctld" in self._daemons:
            self.cancel("--partition=batch")
            self.cancel("--partition=debug")
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not self.command("squeue", "-h"), "the end of all jobs", 10)
        for name in ("slurmd", "slurmctld", "munged"):
            if daemon := self._daemons.pop(name, None):
                daemon.stop()
        trees = _CGROUPS_ROOT.glob(f"*/slurm_{self.node}") if _VERSION == 1 else [self._tree]
        for tree in trees:
            self._remove(tree)

    @property
    def _tree(self) -> Path:
        """The cgroup of all jobs; of version 1 that of the hierarchy `freezer`."""
        if _VERSION == 1:
            return _CGROUPS_ROOT / "freezer" / f"slurm_{self.node}"
        return _SLICE / f"{self.node}_slurmstepd.scope"

    @staticmethod
    def _remove(tree: Path) -> None:
        groups = [tree, *sorted(path for path in tree.rglob("*") if path.is_dir())]
        groups = [group for group in groups if group.exists()]
        for group in reversed(groups):
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            wait_until(lambda at=group: _removed(at), f"{group} is empty")  # type: ignore[misc]


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@contextmanager
def running_slurm(folder: Path, devices: Sequence[Path] = ()) -> Iterator[Slurm]:
    """Run a Slurm during the `with` block."""
    slurm = Slurm(folder, devices)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
