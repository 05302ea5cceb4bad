"""From the events of sources to Kubernetes Events on pods, through the real join."""

from typing import Any

import pytest

from pipeline.model import (
    NS,
    Device,
    DeviceUse,
    PartialRef,
    Pod,
    PodContainer,
    PodInfo,
    PodsReplaced,
    ProcessesSampled,
    XidReport,
    XidsReported,
)
from sources.kernel.log_records import xid as parsed
from tests.sinks.events.support import Bench, sleep
from tests.sources.kernel.logs import xid
from tests.support.nodes import START, Node, at, claims, gpu, kubelet_claim, mig

pytestmark = pytest.mark.looptime

GPU = gpu(0)
DIVIDED_GPU = gpu(1)
INSTANCES = [mig(DIVIDED_GPU, gi) for gi in (7, 8)]


def pod(name: str, uid: str = "") -> Pod:
    info = PodInfo(uid or f"uid-{name}", "ml", name, "Running")
    container = PodContainer("main", container_id=(name * 64)[:64], started=at(-1060))
    return Pod(info, at(-1060), containers=(container,), wants_devices=True)


def unused_sample(device: Device) -> DeviceUse:
    """Return a usage sample of a device without processes."""
    return DeviceUse(device.uuid, at(-1000), None, (), 0, 0, None, 0, 10**15)


class Joined(Bench):
    """Two pods on one GPU, and one pod on each of two instances of another."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.node = Node()
        # The clock of the event loop starts at 0.
        self.node.seconds = self.start_seconds = -START.mono_ns / NS
        self.node.has(GPU, DIVIDED_GPU, *INSTANCES)
        self.node.say(PodsReplaced(tuple(map(pod, "abcd")), 10**15), "pods", "pods")
        devices = {"a": GPU, "b": GPU, "c": INSTANCES[0], "d": INSTANCES[1]}
        kubelet_claims = [kubelet_claim(name, device.uuid) for name, device in devices.items()]
        self.node.say(claims(*kubelet_claims, good_for=1e6), "kubelet", "podresources")
        self.node.say(ProcessesSampled(tuple(map(unused_sample, (GPU, *INSTANCES, DIVIDED_GPU)))))

    def report_by_nvml(self, device: Device, code: int = 31) -> None:
        self.emit("gpus", "nvml", XidReport(device.uuid, "", code, self.ctx.clock.now()))

    def report_by_kernel_log(
        self, device: Device, code: int = 31, pid: int = 77, owner: str = ""
    ) -> None:
        line = parsed(xid(code, f"PCI:{device.pci_bus_id[4:-2]}", f", pid={pid}, name=sh").encode())
        assert line is not None
        now = self.ctx.clock.now()
        found = self.owner(owner) if owner else None
        report = XidReport("", line.pci_bus_id, code, now, line.pid, line.process, found)
        self.emit("log", "kernel", report)

    def owner(self, name: str) -> PartialRef:
        return PartialRef(uid=f"uid-{name}", container_id=(name * 64)[:64])

    def emit(self, source: str, kind: str, report: XidReport) -> None:
        self.node.seconds = self.start_seconds + report.at.mono_ns / NS
        self.node.say(XidsReported((report,)), source, kind)
        self.ctx.snapshot = self.node.snapshot()
        self.inbox.offer(self.ctx.snapshot)

    def messages(self) -> dict[str, str]:
        found = {each["involvedObject"]["name"]: each for each in self.events()}
        assert all(each["involvedObject"]["uid"] == f"uid-{name}" for name, each in found.items())
        return {name: each["message"] for name, each in sorted(found.items())}


async def test_all_pods_that_share_a_gpu_get_an_event() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.report_by_nvml(GPU)
        await sleep(7)
        assert list(bench.messages()) == ["a", "b"]


async def test_the_kernel_log_names_the_pod_of_the_process() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.report_by_nvml(GPU)
        await sleep(1)
        bench.report_by_kernel_log(GPU, owner="b")
        await sleep(7)
        messages = bench.messages()
        assert "names a process that is not known to be this pod's;" in messages["a"]
        assert "names a process of this pod: sh (pid 77 on the node);" in messages["b"]
        assert [each["count"] for each in bench.events()] == [1, 1]


async def test_an_error_of_a_mig_instance_affects_its_own_pods_only() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.report_by_nvml(INSTANCES[1])
        await sleep(7)
        assert list(bench.messages()) == ["d"]
        assert INSTANCES[1].uuid in bench.messages()["d"]


async def test_an_error_of_a_gpu_affects_the_pods_of_all_its_instances() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.report_by_kernel_log(DIVIDED_GPU, code=79)
        await sleep(7)
        assert list(bench.messages()) == ["c", "d"]


async def test_an_error_of_an_unknown_gpu_results_in_no_event() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.report_by_nvml(gpu(5))
        await sleep(60)
        assert bench.events() == []
