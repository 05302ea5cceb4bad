"""Simulated GPU processes of pods, and the growth of their usage accounts."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.e2e.kube.api import Object
from tests.e2e.podgpu import Series
from tests.e2e.processes import wait_until
from tests.e2e.watched_podgpu import WatchedPodgpu
from tests.fakes.nvml import Load, Proc

HELD = "podgpu_container_held_seconds_total"
BUSY = "podgpu_container_busy_seconds_total"
ACCOUNTED = "podgpu_device_accounted_seconds_total"


def pid(pod: Object) -> int:
    """Return the first process of a pod's first container."""
    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if container in (process / "cgroup").read_text():
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"no process of {container}")


def work(podgpu: WatchedPodgpu, worker: Mapping[str, Object]) -> None:
    """Simulate that pods keep devices busy; `worker` has the pod by the device's uuid."""
    assert podgpu.fake is not None
    gpus = []
    for gpu in podgpu.fake.scenario.gpus:
        pids = [pid(worker[gpu.uuid])] if gpu.uuid in worker else []
        gpus.append(
            replace(
                gpu, processes=[Proc(each) for each in pids], loads=[Load(each) for each in pids]
            )
        )
    podgpu.fake.set(replace(podgpu.fake.scenario, gpus=gpus))


class Growth:
    """The growth of the usage accounts between two scrapes.

    Args:
        podgpu: the podgpu whose page is read.
        seconds: the time between the two scrapes.
    """

    def __init__(self, podgpu: WatchedPodgpu, seconds: float = 3) -> None:
        self._before = podgpu.page()
        time.sleep(seconds)
        self._after = podgpu.page()

    def of(self, name: str, device: str, pod: str = "") -> float:
        """Return the growth of a metric of a device, or of a pod on a device; 0 without series."""
        wanted = {"UUID": device, **({"pod": pod} if pod else {})}
        return _sum(self._after, name, wanted) - _sum(self._before, name, wanted)

    def held(self, device: str, pod: str) -> float:
        """Return the fraction of a device's accounted time for which a pod held it."""
        return self.of(HELD, device, pod) / self.of(ACCOUNTED, device)


def wait_busy(podgpu: WatchedPodgpu, device: str, pod: str) -> None:
    """Wait until a pod's account has busy time on a device."""
    wait_until(lambda: (podgpu.value(BUSY, UUID=device, pod=pod) or 0) > 0, f"{pod} is busy")


def _sum(page: Series, name: str, labels: Mapping[str, str]) -> float:
    return sum(
        value
        for (found, pairs), value in page.items()
        if found == name and labels.items() <= dict(pairs).items()
    )
