"""A node with GPUs and a podgpu that observes it, with assertions about both."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.plugin import DevicePlugin
from tests.e2e.processes import wait_until
from tests.e2e.watched_podgpu import Owner, WatchedPodgpu
from tests.gpu import driver_state

SOON = 2.0
"""Maximum delay of labels after the kubelet and the API server, in seconds."""

KUBELET = ("podresources", "kubelet_ids")
LITTLE = 256
"""MiB: more than an ended program leaves on a GPU, and less than any running program uses."""

_KEYS = ("namespace", "pod", "container")

Figures = dict[str, Any]


@dataclass
class Stage:
    kube: Cluster
    podgpu: WatchedPodgpu
    plugin: DevicePlugin
    minors: Mapping[str, int]
    """Minor numbers of the machine's GPUs by uuid."""
    true: set[tuple[str, Owner]] = field(default_factory=set)
    """All pairs of a GPU and a real holder."""

    def started(self, manifest: Object) -> tuple[Owner, str]:
        """Run a program; return its pod and the GPU that it uses."""
        meta = self.kube.run(manifest)["metadata"]
        name, namespace = meta["name"], meta["namespace"]

        def output() -> list[str]:
            log = self.kube.pod_log(name, namespace=namespace)
            phase = self.kube.api.pod(name, namespace)["status"]["phase"]
            assert phase != "Failed", log[-2000:]
            return [word for word in log.split() if word in self.minors]

        (gpu,) = wait_until(output, f"{name} computes", 90)
        return Owner(name, "main", meta["uid"], namespace), gpu

    def expect(
        self, owners: Mapping[str, Collection[Owner]], by: tuple[str, str] = KUBELET
    ) -> None:
        """Assert that exactly these holders are shown, with this source and evidence."""
        self.true |= {(gpu, owner) for gpu, found in owners.items() for owner in found}
        self.podgpu.wait_owners(owners, SOON)
        found = {(seen.source, seen.evidence) for seen in self.podgpu.holders()}
        assert found <= {by}, found

    def processes(self) -> dict[str, dict[int, float]]:
        """Return podgpu's processes by GPU: memory in bytes by pid."""
        found: dict[str, dict[int, float]] = {gpu: {} for gpu in self.minors}
        for labels, value in self.podgpu.of("podgpu_process_memory_used_bytes"):
            found[labels["UUID"]][int(labels["pid"])] = value
        return found

    def agree(self, owners: Mapping[str, Collection[Owner]]) -> Figures:
        """Assert that each of these pods has one process on its GPU, and that there are no others.

        This compares podgpu's list, the driver's list, and the cgroups of the processes.
        """
        pids: dict[str, set[int]] = {}

        def listed() -> bool:
            nonlocal pids
            pids = {gpu: set(found) for gpu, found in self.processes().items()}
            return sum(map(len, pids.values())) == sum(map(len, owners.values()))

        wait_until(listed, f"podgpu lists the processes of {owners}", 10)
        assert pids == driver_state.processes()
        pods = {
            gpu: sorted(map(driver_state.pod_of, found)) for gpu, found in pids.items() if found
        }
        shown: dict[str, list[str]] = {}
        for seen in self.podgpu.holders():
            shown.setdefault(seen.device, []).append(seen.owner.uid)
        assert pods == {gpu: sorted(shown.get(gpu, [])) for gpu in pods}
        assert pods == {gpu: sorted(one.uid for one in found) for gpu, found in owners.items()}
        return {gpu: sorted(found) for gpu, found in pids.items() if found}

    def reading(self, metric: str, gpu: str, owner: Owner) -> float:
        """Return a reading of a GPU, and assert that it has the labels of this holder."""
        # Readings from before a change of holders are omitted until there is a new one.
        ((labels, value),) = wait_until(lambda: self.podgpu.of(metric, UUID=gpu), metric, SOON)
        expected = (owner.namespace, owner.pod, owner.container)
        assert tuple(labels[key] for key in _KEYS) == expected, labels
        return value

    def busy(self, gpu: str, owner: Owner, mebibytes: int, above: float = 50) -> Figures:
        """Assert that readings show the load and the memory of the holder's program."""

        def load() -> float:
            return self.reading("DCGM_FI_DEV_GPU_UTIL", gpu, owner)

        wait_until(lambda: load() > above, f"{gpu} computes", 15)
        used = self.reading("DCGM_FI_DEV_FB_USED", gpu, owner)
        (own,) = (value / 2**20 for value in self.processes()[gpu].values())
        assert mebibytes <= own <= used + 1, (mebibytes, own, used)
        return {"utilisation": load(), "used_mib": used, "process_mib": own}

    def idle(self, gpu: str, owner: Owner) -> Figures:
        """Assert that readings show an idle GPU."""

        def readings() -> tuple[float, float]:
            load = self.reading("DCGM_FI_DEV_GPU_UTIL", gpu, owner)
            return load, self.reading("DCGM_FI_DEV_FB_USED", gpu, owner)

        wait_until(lambda: readings()[0] == 0 and readings()[1] < LITTLE, f"{gpu} rests", 15)
        load, used = readings()
        return {"utilisation": load, "used_mib": used}

    def requests(self) -> "Counter[str]":
        """Return the numbers of requests by source, method and result."""
        return Counter(
            {
                " ".join(labels[key] for key in ("source", "method", "result")): round(value)
                for labels, value in self.podgpu.of("podgpu_source_requests_total")
            }
        )

    def gone(self, owner: Owner) -> None:
        self.kube.remove(owner.pod, owner.namespace)
