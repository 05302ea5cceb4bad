"""Pods that run CUDA programs: the node's own Python, with torch, out of the node's own folders."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.kube.api import Object
from tests.e2e.kube.pods import GPU, container, pod, run

LOAD = Path(__file__).with_name("load.py")
_THERE = "/podgpu/load.py"
_LOADER = Path("/etc/ld.so.cache")


def program(
    name: str, mebibytes: int, *, duty: float = 1, seconds: float = 3600, gpu: str = "", **more: Any
) -> Object:
    """Return a pod that has so much memory on a GPU and computes for this part of the time.

    It computes on the GPU that the device plugin's answer names; with `gpu` on that one, and asks
    for half a GPU of koordinator, of which the kubelet of such a node knows nothing.
    """
    # The shell is the first process, to which a signal without a trap is none.
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
    """Return a pod that runs a script of the shell, with the node's Python and its GPUs' nodes.

    Args:
        name: its name.
        script: what it runs.
        files: of the node, by where they are in the pod.
        wanted: resources of its only container.
        env: variables.
        more: as of `pod`.
    """
    passed = {"HOME": "/tmp", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""), **env}
    made = container(resources=wanted, command=run(script), env=passed, privileged=True)
    places = {
        **{path: path for path in _folders()},
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


def _folders() -> list[str]:
    """Return what of the node such a program needs: wherever Python lies, and the libraries."""
    prefixes = (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable))
    found = {"/usr", *(f"/{Path(prefix).parts[1]}" for prefix in prefixes)}
    return [*sorted(found), *([str(_LOADER)] if _LOADER.exists() else [])]
