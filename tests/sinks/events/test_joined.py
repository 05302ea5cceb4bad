"""From what sources say to the Events on the pods, through the real join."""

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
from tests.sinks.events.support import Bench, passes
from tests.sources.kernel.logs import xid
from tests.support.nodes import START, Node, at, claims, gpu, kubelet_claim, mig

pytestmark = pytest.mark.looptime

GPU = gpu(0)
CUT = gpu(1)
PARTS = [mig(CUT, gi) for gi in (7, 8)]


def pod(name: str, uid: str = "") -> Pod:
    info = PodInfo(uid or f"uid-{name}", "ml", name, "Running")
    container = PodContainer("main", container_id=(name * 64)[:64], started=at(-1060))
    return Pod(info, at(-1060), containers=(container,), wants_devices=True)


def seen(device: Device) -> DeviceUse:
    """A look at a device on which nobody computes."""
    return DeviceUse(device.uuid, at(-1000), None, (), 0, 0, None, 0, 10**15)


class Joined(Bench):
    """Two pods on one GPU, and one on each of the two instances of another."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.node = Node()
        # The loop's clock begins at 0.
        self.node.seconds = self.began = -START.mono_ns / NS
        self.node.has(GPU, CUT, *PARTS)
        self.node.say(PodsReplaced(tuple(map(pod, "abcd")), 10**15), "pods", "pods")
        on = {"a": GPU, "b": GPU, "c": PARTS[0], "d": PARTS[1]}
        said = [kubelet_claim(name, device.uuid) for name, device in on.items()]
        self.node.say(claims(*said, good_for=1e6), "kubelet", "podresources")
        self.node.say(ProcessesSampled(tuple(map(seen, (GPU, *PARTS, CUT)))))

    def nvml_says(self, device: Device, code: int = 31) -> None:
        self.given_out("gpus", "nvml", XidReport(device.uuid, "", code, self.ctx.clock.now()))

    def log_says(self, device: Device, code: int = 31, pid: int = 77, whose: str = "") -> None:
        line = parsed(xid(code, f"PCI:{device.pci_bus_id[4:-2]}", f", pid={pid}, name=sh").encode())
        assert line is not None
        now = self.ctx.clock.now()
        owner = self.owner(whose) if whose else None
        report = XidReport("", line.pci_bus_id, code, now, line.pid, line.process, owner)
        self.given_out("log", "kernel", report)

    def owner(self, name: str) -> PartialRef:
        return PartialRef(uid=f"uid-{name}", container_id=(name * 64)[:64])

    def given_out(self, source: str, kind: str, report: XidReport) -> None:
        self.node.seconds = self.began + report.at.mono_ns / NS
        self.node.say(XidsReported((report,)), source, kind)
        self.ctx.snapshot = self.node.snapshot()
        self.inbox.offer(self.ctx.snapshot)

    def messages(self) -> dict[str, str]:
        found = {each["involvedObject"]["name"]: each for each in self.events()}
        assert all(each["involvedObject"]["uid"] == f"uid-{name}" for name, each in found.items())
        return {name: each["message"] for name, each in sorted(found.items())}


async def test_all_who_share_a_gpu_are_struck() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.nvml_says(GPU)
        await passes(7)
        assert list(bench.messages()) == ["a", "b"]


async def test_the_kernel_s_log_reports_whose_process_it_was() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.nvml_says(GPU)
        await passes(1)
        bench.log_says(GPU, whose="b")
        await passes(7)
        given_out = bench.messages()
        assert given_out["a"].endswith("names a process that is not known to be this pod's")
        assert given_out["b"].endswith("names a process of this pod: sh (pid 77 on the node)")
        assert [each["count"] for each in bench.events()] == [1, 1]


async def test_of_an_instance_its_own_pods_are_struck() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.nvml_says(PARTS[1])
        await passes(7)
        assert list(bench.messages()) == ["d"]
        assert PARTS[1].uuid in bench.messages()["d"]


async def test_of_a_gpu_with_instances_the_pods_of_all_are() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.log_says(CUT, code=79)
        await passes(7)
        assert list(bench.messages()) == ["c", "d"]


async def test_of_a_gpu_that_no_one_knows_no_one_is() -> None:
    async with Joined().running() as bench:
        assert isinstance(bench, Joined)
        bench.nvml_says(gpu(5))
        await passes(60)
        assert bench.events() == []
