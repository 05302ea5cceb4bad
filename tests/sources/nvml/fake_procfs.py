"""A procfs made of regular files."""

import os
import shutil
from pathlib import Path

from pipeline.model import PartialRef

ID = "ab" * 32
UID = "67711498-0b76-435e-8929-2ec772bd35ac"
POD = f"0::/kubepods/pod{UID}/{ID}\n"
OWNER = PartialRef(uid=UID, container_id=ID)

UPTIME_S = 500
TICKS = os.sysconf("SC_CLK_TCK")


class Proc:
    """A procfs in which a test starts and ends processes.

    Args:
        root: its folder, which is created.
        numbers: the pids of this process, from the pid namespace that is shown to its own one.
    """

    def __init__(self, root: Path, numbers: str = "40") -> None:
        self.root = root
        (root / "self").mkdir(parents=True)
        (root / "self/status").write_text(f"Name:\tpodgpu\nNSpid:\t{numbers}\nNSpgid:\t1\t1\n")
        (root / "uptime").write_text(f"{UPTIME_S}.00 12345.67\n")

    def run(self, pid: int, started: float = 100, cgroup: str = POD, name: str = "python") -> None:
        """Start a process, `started` seconds after the boot."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        rest = " ".join(map(str, range(4, 22)))
        stat = f"{pid} ({name}) S {rest} {round(started * TICKS)} 0 0\n"
        (folder / "stat").write_text(stat)
        (folder / "cgroup").write_text(cgroup)

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))
