"""Record pods on all, some and parts of a machine's GPUs: real processes, without Kubernetes.

A podlist.json says which pod holds which GPUs. First one pod works on all GPUs, then one works on
half of them, and two pods share the last GPU.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.model import ClaimsReplaced, SamplesTaken
from pipeline.recording import RecordingReader
from tests.gpu import driver_state, kernels
from tests.gpu.recorder import GROUPS, record

_LOAD = Path(__file__).with_name("load.py")
_NCCL = "import sys, torch; sys.exit(not torch.distributed.is_nccl_available())"


def load_kind() -> str:
    """Return `nccl` if torch with NCCL can be used here, otherwise `kernels`."""
    done = subprocess.run(
        [sys.executable, "-c", _NCCL], capture_output=True, check=False, timeout=120
    )
    return "kernels" if done.returncode else "nccl"


class Work:
    """Processes that keep GPUs busy until `stop`.

    Args:
        kind: the result of `load_kind`.
        gpus: uuids.
        together: whether they reduce over NCCL. Otherwise each GPU works alone, a part of the time.
    """

    def __init__(self, kind: str, gpus: Sequence[str], *, together: bool = True) -> None:
        if kind == "nccl" and together:
            self._processes = [_started([str(_LOAD), "nccl", "3600"], gpus)]
        elif kind == "nccl":
            words = [str(_LOAD), "serve", "3600", "8000", "0.2", "0.5", "37"]
            self._processes = [_started(words, [gpu]) for gpu in gpus]
        else:
            duty = "0.9" if together else "0.3"
            words = [kernels.__file__, "work", duty]
            self._processes = [
                _started([*words, str(at), "1024"], [gpu]) for at, gpu in enumerate(gpus)
            ]

    def stop(self) -> None:
        """End the processes, and their children."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _started(words: Sequence[str], gpus: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_working(counts: Mapping[str, int], seconds: float = 90) -> None:
    """Wait until GPUs have at least these numbers of processes, and then until all compute.

    Raises:
        RuntimeError: they do not have them at the end of the time limit.
    """
    end = time.monotonic() + seconds
    while True:
        found = driver_state.processes()
        if all(len(found[gpu]) >= count for gpu, count in counts.items()):
            break
        if time.monotonic() > end:
            raise RuntimeError(f"not all GPUs have processes after {seconds:g} s: {found}")
        time.sleep(0.5)
    time.sleep(8)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the recording.

    Attributes:
        place: namespace, name and container.
        ids: device ids that it holds; replicas if it has a part of a GPU.
        together: as for `Work`.
    """

    place: str
    ids: tuple[str, ...]
    together: bool = False

    @property
    def gpus(self) -> list[str]:
        return [one.partition("::")[0] for one in self.ids]

    def entry(self) -> dict[str, object]:
        """Return the entry in podlist.json."""
        namespace, name, container = self.place.split("/")
        found = {"namespace": namespace, "name": name, "container": container}
        return {**found, "gpu_list": list(self.ids)}


def scenes(gpus: Sequence[str]) -> list[list[Pod]]:
    """Return the pods of the two halves of the recording."""
    some = tuple(gpus[: len(gpus) // 2])
    last = gpus[-1]
    second = [
        Pod("chat/assistant-0/server", (f"{last}::0",)),
        Pod("search/embeddings-0/encoder", (f"{last}::1",)),
    ]
    if some:
        second.insert(0, Pod("research/finetune-0/trainer", some, together=True))
    return [[Pod("research/llama-train-0/trainer", tuple(gpus), together=True)], second]


def play(pods: Sequence[Pod], kind: str, podlist: Path, seconds: float) -> None:
    """Run the pods of one scene."""
    new = podlist.with_suffix(".new")
    new.write_text(json.dumps([pod.entry() for pod in pods]))
    new.replace(podlist)
    works = []
    try:
        for pod in pods:
            works.append(Work(kind, pod.gpus, together=pod.together))  # noqa: PERF401 - all stop
        time.sleep(seconds)
    finally:
        for work in works:
            work.stop()


def recorded(folder: Path, gpus: Sequence[str], kind: str, seconds: float) -> dict[str, Any]:
    """Make the recording, and return what it contains.

    Args:
        folder: folder for the recording.
        gpus: uuids of the machine's GPUs.
        kind: the result of `load_kind`.
        seconds: duration of the recording.
    """
    folder.mkdir(parents=True, exist_ok=True)
    podlist, output = folder / "podlist.json", folder / "whole-host.podgpu.gz"
    podlist.write_text("[]")
    configured = folder / "podgpu.yaml"
    nvml = {"kind": "nvml", "interval": "1s", "slow_interval": "5s", "usage_interval": "2s"}
    content = {
        "node": "gpu-node",
        "sources": {"gpus": nvml, "podlist": {"kind": "podlist", "path": str(podlist)}},
        "counters": {"also": list(GROUPS)},
        "sinks": {"unused": {"kind": "jsonl", "path": "-"}},
    }
    configured.write_text(yaml.safe_dump(content, sort_keys=False))
    with ThreadPoolExecutor(1) as recorder:
        recording = recorder.submit(record, configured, output, seconds)
        for pods in scenes(gpus):
            play(pods, kind, podlist, seconds / 2)
        recording.result()
    return {"seconds": seconds, "load": kind, **contents(output, gpus)}


def contents(recording: Path, gpus: Sequence[str]) -> dict[str, Any]:
    """Return what a recording of the scenes contains, and its faults."""
    pods: set[str] = set()
    profiled: Counter[str] = Counter()
    events: Counter[str] = Counter()
    with RecordingReader(recording) as reader:
        for envelope in reader:
            event = envelope.event
            events[type(event).__name__] += 1
            if isinstance(event, ClaimsReplaced):
                pods |= {claim.subject.pod for claim in event.claims}
            if isinstance(event, SamplesTaken):
                profiled.update(
                    one.device for one in event.readings if one.field == "tensor_active_ratio"
                )
    wanted = {pod.place.split("/")[1] for scene in scenes(gpus) for pod in scene}
    faults = [f"{pod} is not in the recording" for pod in sorted(wanted - pods)]
    faults += [f"{gpu} has no profiling fields" for gpu in gpus if not profiled[gpu]]
    return {
        "bytes": recording.stat().st_size,
        "events": dict(events),
        "pods": sorted(pods),
        "profiled": dict(profiled),
        "faults": faults,
    }
