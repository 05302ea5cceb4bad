"""The reference for podgpu: the driver's process lists, and the kernel's cgroups."""

import re
from pathlib import Path

import pynvml

_POD = re.compile(r"/pod([0-9a-f]{8}-[0-9a-f-]{27})(?:/|$)", re.MULTILINE)


def gpus() -> dict[str, int]:
    """Return the minor numbers of the machine's GPUs by uuid."""
    pynvml.nvmlInit()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {
            pynvml.nvmlDeviceGetUUID(handle): pynvml.nvmlDeviceGetMinorNumber(handle)
            for handle in handles
        }
    finally:
        pynvml.nvmlShutdown()


def processes() -> dict[str, set[int]]:
    """Return the compute processes by uuid of the GPU, including idle GPUs."""
    pynvml.nvmlInit()
    try:
        found = {}
        for at in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(at)
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            found[pynvml.nvmlDeviceGetUUID(handle)] = {process.pid for process in running}
        return found
    finally:
        pynvml.nvmlShutdown()


def pod_of(pid: int) -> str:
    """Return the uid of a process' pod, from its cgroup; empty if it is in no pod."""
    found = _POD.search(Path(f"/proc/{pid}/cgroup").read_text())
    return found[1] if found else ""
