"""A podgpu in a pod without the host's PID namespace, and NVML's process lists there.

    python3 -m tests.gpu.without_host_pid CONFIG SECONDS

Runs in such a pod: prints NVML's process lists during some seconds as one line of JSON, and then
executes `podgpu run -c CONFIG`. `pod()` returns the pod.
"""

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml
import yaml

from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.gpu.programs import python

ROOT = Path(__file__).resolve().parents[2]
HOST_PROC = "/host/proc"
"""The path of the node's procfs in the pod."""

_NUMBERS = re.compile(r"^NSpid:\s*(.*)$", re.MULTILINE)


def pod(
    kube: Cluster, folder: Path, port: int, env: Mapping[str, str], gpus: Mapping[str, Any]
) -> Object:
    """Return the pod, which listens on a port of the node.

    Args:
        kube: the cluster.
        folder: folder for its configuration.
        port: port of its page.
        env: environment variables, such as those of a scenario.
        gpus: options of its source `nvml`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "podgpu.yaml"
    socket = kube.pod_resources_socket
    config.write_text(
        yaml.safe_dump(
            {
                "node": kube.node,
                "sources": {
                    "gpus": {"kind": "nvml", "interval": "1s", "usage_interval": "2s", **gpus},
                    "kubelet": {
                        "kind": "podresources",
                        "sockets": [str(socket)],
                        "interval": "1s",
                    },
                },
                "sinks": {"metrics": {"kind": "prometheus", "listen": f"127.0.0.1:{port}"}},
            }
        )
    )
    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    seen = [str(ROOT), *paths, str(folder), str(socket.parent)]
    files = {**{place: Path(place) for place in seen}, HOST_PROC: Path("/proc")}
    passed = {"PYTHONPATH": os.pathsep.join([str(ROOT), *paths]), "PYTHONSAFEPATH": "1", **env}
    script = f"exec {sys.executable} -m tests.gpu.without_host_pid {config} 6"
    return python("blind", script, files, {}, passed)


def seen(seconds: float) -> dict[str, Any]:
    """Return NVML's process lists of the first GPU, and this process' ids in procfs."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found: dict[str, Any] = {
        "pid": os.getpid(),
        "namespace": str(Path("/proc/self/ns/pid").readlink()),
        "listed": [],
        "utilisation": [],
    }
    for place in ("/proc", HOST_PROC):
        try:
            text = (Path(place) / "self/status").read_text()
        except OSError as error:
            found[place] = str(error)
        else:
            found[place] = _NUMBERS.findall(text)
    since = int(time.time() * 1e6)
    for _ in range(max(1, round(seconds / 2))):
        time.sleep(2)
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        found["listed"].append([(one.pid, one.usedGpuMemory) for one in listed])
        try:
            entries = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
        except pynvml.NVMLError as error:
            found["utilisation"].append(str(error))
        else:
            found["utilisation"].append([(one.pid, one.smUtil) for one in entries])
    found["memory"] = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    pynvml.nvmlShutdown()
    return found


if __name__ == "__main__":
    print(json.dumps(seen(float(sys.argv[2]))), flush=True)
    os.execv(  # noqa: S606 - podgpu replaces this process
        sys.executable, [sys.executable, "-m", "podgpu", "run", "-c", sys.argv[1]]
    )
