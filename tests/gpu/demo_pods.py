"""Record the real part of the demo: pods of a real Kubernetes node on two GPUs.

    python3 -m tests.gpu.demo_pods --out DIR [--shared 225] [--train 620]

Starts a Kubernetes cluster (as root; see tests/e2e/kube) whose device plugin offers this machine's
GPUs. Needs torch. Writes two recordings: `real-shared.podgpu.gz`, in which three pods share one GPU
and two share the other, and `real-train.podgpu.gz`, in which one pod trains on both GPUs. All pods
work before a recording begins. `tests.demo.merge` makes the demo of them. Changes no setting of a
GPU.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tests.e2e.kube import access
from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import GPU
from tests.e2e.processes import wait_until
from tests.e2e.watched_podgpu import RULES
from tests.gpu import driver_state
from tests.gpu.accounts import physical
from tests.gpu.programs import LOAD, python
from tests.gpu.recorder import GROUPS, record

_THERE = "/podgpu/load.py"
_SHM = "/dev/shm"
FIRST = {
    "chat/assistant-0/server": "serve 7200 60000 0.25 0.65 47",
    "search/embeddings-0/encoder": "serve 7200 8000 0.05 0.25 31",
    "notebooks/scratch-0/jupyter": "hold 7200 18000 0",
}
"""Pods on the first GPU: namespace, name and container, and the arguments of load.py."""
SECOND = {
    "vision/detector-0/detector": "serve 7200 24000 0.3 0.6 37",
    "vision/tracker-0/tracker": "serve 7200 12000 0.1 0.4 23",
}
"""Pods on the second GPU."""
SHELL = ("ops/debug-shell/shell", "serve 7200 1500 0 0.1 20")
"""A pod that uses the second GPU without a request."""
TRAINING = ("research/llama-train-0/trainer", "nccl 7200 30 2")


def manifest(place: str, words: str, gpus: int, visible: str = "") -> Object:
    """Return a pod that runs load.py; with `visible`, on this GPU instead of the allocated ones."""
    namespace, name, container = place.split("/")
    set_ = visible or "$NVIDIA_VISIBLE_DEVICES"
    script = (
        f"export CUDA_VISIBLE_DEVICES={set_}; trap 'exit 0' TERM; "
        f"{sys.executable} {_THERE} {words} & wait $!"
    )
    files = {_THERE: LOAD, _SHM: Path(_SHM)}
    made = python(name, script, files, {GPU: gpus} if gpus else {}, {}, namespace=namespace)
    (only,) = made["spec"]["containers"]
    only["name"] = container
    for mount in only["volumeMounts"]:
        mount["readOnly"] = mount["mountPath"] != _SHM
    return made


def start(kube: Cluster, pods: Mapping[str, str]) -> None:
    """Start pods one after the other, each with one GPU or a part of it."""
    for place, words in pods.items():
        kube.run(manifest(place, words, 1))


def working(count: int) -> None:
    """Wait until this many processes are on the GPUs, and then until all compute."""

    def listed() -> bool:
        return sum(map(len, driver_state.processes().values())) >= count

    wait_until(listed, f"{count} processes on the GPUs", 120)
    time.sleep(8)


def end(kube: Cluster, places: Sequence[str]) -> None:
    for place in places:
        namespace, name, _ = place.split("/")
        kube.api.delete("Pod", name, namespace)
    for place in places:
        namespace, name, _ = place.split("/")
        kube.api.wait_gone("Pod", name, namespace)


def config(kube: Cluster, folder: Path) -> Path:
    """Write the recorder's configuration."""
    access.service_account(kube.api, "podgpu", RULES)
    kubeconfig = folder / "kubeconfig"
    access.kubeconfig(kubeconfig, kube.api, token=access.token(kube.api, "podgpu"))
    sources = {
        "gpus": {"kind": "nvml", "interval": "1s", "slow_interval": "5s", "usage_interval": "2s"},
        "kubelet": {
            "kind": "podresources",
            "interval": "2s",
            "sockets": [str(kube.pod_resources_socket)],
        },
        "pods": {"kind": "pods", "kubeconfig": str(kubeconfig)},
        "runtime": {"kind": "nri", "socket": str(kube.nri_socket)},
        "kernel": {"kind": "kernel"},
    }
    path = folder / "podgpu.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "node": kube.node,
                "sources": sources,
                "counters": {"also": list(GROUPS)},
                "sinks": {"unused": {"kind": "jsonl", "path": "-"}},
            },
            sort_keys=False,
        )
    )
    return path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shared", type=float, default=225, help="seconds of the first recording")
    parser.add_argument("--train", type=float, default=620, help="seconds of the second one")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    one, two = sorted(driver_state.gpus(), key=driver_state.gpus().__getitem__)
    with Cluster() as kube:
        configured = config(kube, out)
        # The kubelet chooses freely among healthy replicas, so each GPU has as many as its pods.
        replicas = [f"{one}::{at}" for at in range(len(FIRST))]
        plugin = kube.plugin(replicas, substitute=physical)
        start(kube, FIRST)
        replicas += [f"{two}::{at}" for at in range(len(SECOND))]
        plugin.set_devices(replicas)
        kube.wait_allocatable(GPU, len(replicas))
        start(kube, SECOND)
        kube.run(manifest(*SHELL, gpus=0, visible=two))
        working(len(FIRST) + len(SECOND) + 1)
        record(configured, out / "real-shared.podgpu.gz", arguments.shared)
        end(kube, [*FIRST, *SECOND, SHELL[0]])
        plugin.substitute = list
        plugin.set_devices([one, two])
        kube.wait_allocatable(GPU, 2)
        kube.run(manifest(*TRAINING, gpus=2))
        working(2)
        record(configured, out / "real-train.podgpu.gz", arguments.train)
        end(kube, [TRAINING[0]])
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
