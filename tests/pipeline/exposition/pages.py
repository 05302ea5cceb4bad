"""Snapshots to render, and functions that parse a page with prometheus_client's two parsers."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import prometheus_client.openmetrics.parser as openmetrics
import prometheus_client.parser as text
from prometheus_client import Metric

from pipeline.base.telemetry import Point
from pipeline.exposition.options import PageOptions
from pipeline.exposition.renderer import PageRenderer
from pipeline.exposition.text_format import Format, tail
from pipeline.model import (
    NS,
    AdvertisedResource,
    Claim,
    ContainersReplaced,
    Device,
    Evidence,
    GpuProcess,
    Level,
    Origin,
    PartialRef,
    Pod,
    PodContainer,
    PodInfo,
    PodsReplaced,
    ProcessList,
    RawDeviceId,
    ResourcesAdvertised,
    Snapshot,
    TopologyCard,
    TopologyPair,
    TopologyRead,
)
from tests.pipeline.exposition.claimed_gpus import claimed_gpus
from tests.pipeline.exposition.shared_gpus import shared_gpus
from tests.support.nodes import START, Node, at, claim, claims, gpu, kubelet_claim, mig, reading
from tests.support.owners import job, podless_container
from tests.support.sinks import FakeSinkContext
from tests.support.usage import account, used, with_usage

HOSTILE = 'a"} 1\nevil{x="\\', "p\n# EOF\n\\n", '\ud800\0{}=,"', "{__name__='x'} \U0001f680"

Series: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by sample name and labels."""


def context(snapshot: Snapshot | None = None) -> FakeSinkContext:
    """Return a sink context with some of podgpu's own metrics."""
    ctx = FakeSinkContext("page")
    ctx.snapshot = snapshot
    ctx.own.add("podgpu_source_events_total", 12, (("source", "gpus"),))
    ctx.own.observe("podgpu_sample_duration_seconds", 0.0125, (("source", "gpus"),))
    ctx.computed["podgpu_build_info"] = [Point((("version", "0.1.0"),), 1)]
    ctx.computed["podgpu_source_age_seconds"] = [Point((("source", "gpus"),), 0.25)]
    return ctx


def renderer(ctx: FakeSinkContext | None = None, **options: Any) -> PageRenderer:
    ctx = ctx or context()
    return PageRenderer(PageOptions(**options), ctx.plan, ctx.node, ctx.meter)


def rendered(
    snapshot: Snapshot | None,
    form: Format = Format.TEXT,
    *,
    ctx: FakeSinkContext | None = None,
    **options: Any,
) -> bytes:
    """Return the whole page of a snapshot."""
    ctx = ctx or context()
    made = renderer(ctx, **options)
    made.show(snapshot)
    return made.body(form) + tail(form, ctx.telemetry())


def families(shown: bytes, form: Format) -> list[Metric]:
    parser = text if form is Format.TEXT else openmetrics
    return list(parser.text_string_to_metric_families(shown.decode()))


def parsed(shown: bytes, form: Format = Format.TEXT) -> Series:
    """Parse a page; fail if a family or a series is there twice."""
    found: Series = {}
    names: set[str] = set()
    for family in families(shown, form):
        assert family.name not in names, family.name
        names.add(family.name)
        for sample in family.samples:
            # The parser of the text format appends `_total` to the name of every counter.
            dcgm = sample.name.startswith(("DCGM_", "dcgm_"))
            name = sample.name.removesuffix("_total") if dcgm else sample.name
            key = name, frozenset(sample.labels.items())
            assert key not in found, key
            assert math.isfinite(sample.value)
            assert sample.timestamp is None
            # The OpenMetrics parser returns integers as int.
            found[key] = float(sample.value)
    return found


def of(series: Series, name: str) -> list[tuple[dict[str, str], float]]:
    """Return labels and value of each series of a metric."""
    return [(dict(labels), value) for (found, labels), value in series.items() if found == name]


def _readings(devices: Iterable[Device], node: Node) -> None:
    readings = []
    for device in devices:
        at = (device.index or 0) + 1
        readings += [
            reading(device, "memory_total_bytes", 81_559 << 20),
            reading(device, "memory_used_bytes", (1 << 20) * at + (1 << 19)),
        ]
        if device.mig is None:
            readings += [
                reading(device, "gpu_up", 1),
                reading(device, "gpu_utilization_percent", 20 * at),
                reading(device, "power_watts", 120.0 + at / 8),
                reading(device, "energy_millijoules", 9_007_199_254_740_993 + at),
                reading(device, "xid_errors", 0, attrs=(("xid", "13"),)),
                reading(device, "xid_errors", at, attrs=(("xid", "119"),)),
            ]
    node.reads(*readings)


def plain_gpus() -> Snapshot:
    """One GPU that one container holds, one that two share, and a free one."""
    node = Node()
    single, shared, free = gpu(0, minor=2), gpu(1, minor=0), gpu(2, minor=1)
    node.has(single, shared, free)
    uid = PartialRef("ml", "train-0", "main", uid="6f1c8a52-7d0e-4f2b-9a40-b7a2f0f6a001")
    node.podlist(
        Claim(uid, (RawDeviceId("uuid", single.uuid),), None, None, Origin(Evidence.POD_LIST_FILE)),
        claim("serve-a", shared.uuid, share=0.5),
        claim("serve-b", shared.uuid, share=0.25, namespace="web", container="server"),
    )
    _readings((single, shared, free), node)
    processes = GpuProcess(4242, "compute", 3 << 20), GpuProcess(4243, "graphics", None)
    node.reads(processes=[ProcessList(single.uuid, processes, START, 10**10)])
    return node.snapshot()


def mig_instances() -> Snapshot:
    """A GPU with two GPU instances; one of them has two compute instances."""
    node = Node()
    parent = gpu(0)
    whole_instance = mig(parent, gi=1, profile="3g.40gb")
    first, second = mig(parent, 2, 0, "1c.3g.40gb"), mig(parent, 2, 1, "1c.3g.40gb")
    node.has(parent, whole_instance, first, second)
    node.podlist(claim("first", first.uuid), claim("second", second.uuid))
    _readings((parent, whole_instance, first, second), node)
    return node.snapshot()


def lost_gpu() -> Snapshot:
    """A GPU that has disappeared, and one whose index and minor number are unknown."""
    node = Node()
    lost, unnumbered = gpu(0), Device(uuid="GPU-00000001-5eed-4a5e-9c0d-000000000000")
    node.has(lost, unnumbered)
    node.podlist(claim("train-0", lost.uuid))
    node.has(unnumbered)
    node.reads(reading(lost, "gpu_up", 0), reading(unnumbered, "gpu_up", 1))
    return node.snapshot()


def hostile_labels() -> Snapshot:
    """Pods and containers with names that need escaping."""
    node = Node()
    first, second = gpu(0), gpu(1)
    node.has(first, second)
    node.podlist(
        claim(HOSTILE[0], first.uuid, namespace=HOSTILE[1], container=HOSTILE[2]),
        claim(HOSTILE[3], second.uuid),
        claim("x" * 5000, second.uuid),
    )
    _readings((first, second), node)
    return node.snapshot()


def pods_and_resources() -> Snapshot:
    """A pod that holds two GPUs, and two pods that both claim the third."""
    node = Node()
    devices = [gpu(at) for at in range(4)]
    node.has(*devices)
    labels = (
        ("app.kubernetes.io/name", "train"),
        ("team", "vision"),
        ("team.x", "a"),
        ("team/x", "b"),
    )
    info = PodInfo(
        "6f1c8a52-7d0e-4f2b-9a40-b7a2f0f6a001",
        "ml",
        "train-0",
        "Running",
        "StatefulSet",
        "train",
        "Burstable",
        labels,
        (("example.com/cost-centre", "42"),),
    )
    pod = Pod(info, at(-60), containers=(PodContainer("main", "app", "c-1", at(-50)),))
    node.say(PodsReplaced((pod,), 300 * NS), "pods", "pods")
    kubelet_claims = [
        kubelet_claim("train-0", devices[0].uuid, devices[1].uuid),
        kubelet_claim("old", devices[2].uuid),
        kubelet_claim("new", devices[2].uuid),
    ]
    node.say(claims(*kubelet_claims), "kubelet", "podresources")
    offer = AdvertisedResource(
        "nvidia.com/gpu", tuple(RawDeviceId("plugin", device.uuid) for device in devices[:3])
    )
    node.say(ResourcesAdvertised((offer,), 300 * NS), "kubelet", "podresources")
    _readings(devices, node)
    return node.snapshot()


def replicas() -> Snapshot:
    """Two boards with known facts: one with replicas of a device plugin, one held as a whole."""
    node = Node()
    known = ("brand", "NVIDIA"), ("driver_version", "580.159.04"), ("serial", "1650123000042")
    devices = [replace(gpu(at), facts=(*known, ("vbios_version", "96.00"))) for at in range(2)]
    node.has(*devices)
    shared, whole = (device.uuid for device in devices)
    kubelet_claims = [
        kubelet_claim("serve-a", f"{shared}::0", f"{shared}::2"),
        kubelet_claim("serve-b", f"{shared}::1"),
        kubelet_claim("train-0", whole),
    ]
    node.say(claims(*kubelet_claims), "kubelet", "podresources")
    _readings(devices, node)
    node.reads(reading(devices[0], "xid_last", 79), reading(devices[1], "xid_last", 0))
    return node.snapshot()


def topology() -> Snapshot:
    """Two sockets with two GPUs each; one GPU is held, one is divided into MIG instances.

    The last two are on one board with an unknown number of links. The last has no index.
    """
    node = Node()
    devices = [gpu(0), gpu(1), gpu(2), replace(gpu(3), index=None)]
    instances = [mig(devices[1], gi) for gi in (1, 2)]
    node.has(*devices, *instances)
    node.podlist(claim("train-0", devices[0].uuid), claim("serve-a", instances[0].uuid))
    cards = tuple(TopologyCard(d.uuid, d.index, d.pci_bus_id, 0, (), 18) for d in devices)
    uuids = [device.uuid for device in devices]
    pairs = tuple(
        TopologyPair(uuids[a], uuids[b], level, nvlinks, nvlinks != 0)
        for a, b, level, nvlinks in (
            (0, 1, Level.SINGLE, 18),
            (0, 2, Level.SYSTEM, 0),
            (0, 3, Level.SYSTEM, 0),
            (1, 2, Level.SYSTEM, 0),
            (1, 3, Level.SYSTEM, 0),
        )
    )
    pairs += (TopologyPair(uuids[2], uuids[3], Level.INTERNAL, None, None),)
    node.say(TopologyRead(cards, pairs))
    return node.snapshot()


def usage() -> Snapshot:
    """A shared GPU, one that is used but not held, and a third with MIG instances.

    One container has ended, and how much of its busy time is contested is unknown; the memory of
    another is unknown.
    """
    node = Node()
    shared, unheld_gpu, parted = gpu(0), gpu(1), gpu(2)
    instances = [mig(parted, gi) for gi in (1, 2)]
    node.has(shared, unheld_gpu, parted, *instances)
    node.podlist(
        claim("serve-a", shared.uuid, share=0.5),
        claim("serve-b", shared.uuid, share=0.25),
        claim("note-0", instances[0].uuid, namespace="lab", container="jupyter"),
    )
    now = at(60)
    return with_usage(
        node.snapshot(),
        account(
            shared,
            used(
                "serve-a",
                memory=3 << 30,
                busy=12_345_678_901,
                held=30 * NS,
                energy=9_000_001,
                contested=1_800_000_000,
                switching=250_000_000,
            ),
            used(
                "serve-b",
                memory=None,
                busy=0,
                held=15 * NS,
                energy=500,
                xids=((13, 1), (31, 7)),
                contested=0,
                switching=0,
            ),
            used("job-0", ended=at(20), busy=2 * NS, energy=1_000_000, xids=((31, 2),)),
            until=now,
            memory=5 << 20,
            reserved=600 << 20,
            busy=NS // 4,
            unheld=15 * NS,
            energy=10**6,
            forgotten=(NS, 0, 7),
        ),
        account(
            unheld_gpu,
            used(
                "",
                namespace="",
                container="",
                uid="u-rogue",
                memory=1,
                busy=60 * NS,
                contested=0,
                switching=0,
            ),
            until=now,
            unheld=60 * NS,
            energy=None,
        ),
        account(parted, until=now, memory=None, busy=None, energy=4_500),
        account(
            instances[0],
            used("note-0", namespace="lab", container="jupyter", held=60 * NS, energy=1),
            until=now,
            busy=NS,
        ),
        account(instances[1], until=now, busy=0, unheld=60 * NS, energy=2),
    )


def jobs_and_containers() -> Snapshot:
    """A GPU of a job, one that two jobs share, one of a container, and one of two containers."""
    node = Node()
    devices = [gpu(at) for at in range(4)]
    node.has(*devices)
    uuids = [device.uuid for device in devices]
    jobs = (
        job("4711", uuids[0], account="physics", partition="gpu", job_name='train "big"'),
        job("4712", uuids[1], share=0.5, user="bob"),
        job("4713", uuids[1], share=0.25, user="eve"),
    )
    node.say(ContainersReplaced(jobs, 300 * NS), "slurm", "slurm")
    containers = (
        podless_container(
            "lab-web-1",
            *uuids[2:],
            image="cuda:13.0",
            compose_project="lab",
            compose_service="web",
        ),
        podless_container("plain", uuids[3], runtime="podman"),
    )
    node.say(ContainersReplaced(containers, 300 * NS), "docker", "docker")
    _readings(devices, node)
    of_job, of_container = jobs[0].subject, containers[0].subject
    return with_usage(
        node.snapshot(),
        account(
            devices[0],
            used(of_job.pod, namespace="hpc", container="", uid=of_job.uid, held=60 * NS, busy=NS),
            until=at(60),
        ),
        account(
            devices[2],
            used("lab-web-1", namespace="", container="", uid=of_container.uid, held=60 * NS),
            until=at(60),
            busy=None,
        ),
    )


SCENES: dict[str, Callable[[], Snapshot | None]] = {
    "plain-gpus": plain_gpus,
    "mig-instances": mig_instances,
    "lost-gpu": lost_gpu,
    "hostile-labels": hostile_labels,
    "pods-and-resources": pods_and_resources,
    "replicas": replicas,
    "resource-claims": claimed_gpus,
    "topology": topology,
    "usage": usage,
    "shared-gpus": shared_gpus,
    "jobs-and-containers": jobs_and_containers,
    "before-the-first-snapshot": lambda: None,
}
