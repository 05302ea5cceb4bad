"""Pods that run CUDA programs with the node's Python and torch, mounted from the node."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.kube.api import Object
from tests.e2e.kube.pods import GPU, container, pod, run
from tests.gpu.host_python import folders

LOAD = Path(__file__).with_name("load.py")
_THERE = "/podgpu/load.py"


def program(
    name: str, mebibytes: int, *, duty: float = 1, seconds: float = 3600, gpu: str = "", **more: Any
) -> Object:
    """Return a pod that allocates GPU memory and computes for a fraction of the time.

    It uses the GPU that the device plugin set. With `gpu` it uses that GPU, and requests half a GPU
    of koordinator's resource, which the kubelet ignores.
    """
    # The shell is process 1, which ignores signals without a trap.
    script = (
        "export CUDA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES; trap 'exit 0' TERM; "
        f"{sys.executable} {_THERE} hold {seconds:g} {mebibytes} {duty:g} & wait $!"
    )
    wanted = {"koordinator.sh/gpu-core": 50} if gpu else {GPU: 1}
    env = {"NVIDIA_VISIBLE_DEVICES": gpu} if gpu else {}
    return python(name, script, {_THERE: LOAD}, wanted, env, **more)


def python(
    name: str,
    script: str,
    files: Mapping[str, Path],
    wanted: Mapping[str, int],
    env: Mapping[str, str],
    **more: Any,
) -> Object:
    """Return a privileged pod that runs a shell script with the node's Python.

    Args:
        name: name of the pod.
        script: the shell script.
        files: files of the node by path in the pod.
        wanted: resources of its only container.
        env: environment variables.
        more: further arguments of `pod`.
    """
    passed = {"HOME": "/tmp", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""), **env}
    made = container(resources=wanted, command=run(script), env=passed, privileged=True)
    places = {
        **{path: path for path in folders()},
        **{there: str(here) for there, here in files.items()},
    }
    made["volumeMounts"] = [
        {"name": f"v{at}", "mountPath": there, "readOnly": True} for at, there in enumerate(places)
    ]
    whole = pod(name, made, **{"restart": "Never", **more})
    whole["spec"]["volumes"] = [
        {"name": f"v{at}", "hostPath": {"path": here}} for at, here in enumerate(places.values())
    ]
    return whole
