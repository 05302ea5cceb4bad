"""Sources' reports on a node on which the author of some pods lies, made by the real readers."""

from collections.abc import Collection
from functools import partial
from typing import Any

from pipeline.component.accepted_annotations import AcceptedAnnotations, by_minor
from pipeline.model import (
    NS,
    AdvertisedResource,
    Claim,
    ClaimsReplaced,
    ContainersReplaced,
    DeviceAliasesReplaced,
    Evidence,
    PartialRef,
    PodsReplaced,
    RawDeviceId,
    ResourcesAdvertised,
    XidsReported,
)
from sources.nri.koordinator_adjustment import koordinator_adjustment
from sources.pods.options import Options
from sources.pods.pod_mapper import PodMapper
from sources.pods.timestamps import Timestamps
from tests.fakes.nri import wire
from tests.pipeline.join.attacks import GPU, PLACEHOLDER, RESOURCE, STARTED, Lie, RealPod, World
from tests.pipeline.join.cluster import GOOD_FOR, make_claim
from tests.pipeline.join.sampled_cluster import SampledCluster
from tests.pipeline.join.test_xid_table import report
from tests.pipeline.usage.samples import use
from tests.sources.nri.plugin_connection import PluginConnection
from tests.support.nodes import at
from tests.support.topology import topology_read


def reporting_node(world: World, *, lying: bool) -> SampledCluster:
    """Return a node after all sources have reported.

    Each device has usage samples and one XID error.
    """
    node = SampledCluster([*world.gpus, *world.slices])
    node.emit("gpus", topology_read(*world.gpus))
    node.emit("pods", PodsReplaced(tuple(pods(world, lying=lying)), GOOD_FOR * NS))
    names = [(RawDeviceId("dra", name), uuid) for uuid, name in world.published.items()]
    node.emit("pods", DeviceAliasesReplaced(tuple(names)))
    if "kubelet" in world.sources:
        node.emit("kubelet", offered(world))
        node.emit("kubelet", offered(world, without=world.withdrawn))
        claims = [claim(one, PartialRef(one.namespace, one.name, "main")) for one in world.pods]
        node.emit("kubelet", ClaimsReplaced(tuple(filter(None, claims)), GOOD_FOR * NS))
    if "checkpoint" in world.sources:
        claims = [
            claim(one, PartialRef(uid=one.uid, container="main"), answered=True)
            for one in world.pods
        ]
        node.emit("checkpoint", ClaimsReplaced(tuple(filter(None, claims)), GOOD_FOR * NS))
    if "runtime" in world.sources:
        node.emit("runtime", containers(world, lying=lying))
    uuids = [device.uuid for device in [*world.gpus, *world.slices]]
    node.sample(5, *(use(uuid, 5, None) for uuid in uuids))
    node.sample(15, *(use(uuid, 15, 5) for uuid in uuids))
    node.seconds = 16
    node.emit("gpus", XidsReported(tuple(report(16, 79, device=uuid) for uuid in uuids)))
    node.sample(25, *(use(uuid, 25, 15) for uuid in uuids))
    return node


def claim(pod: RealPod, ref: PartialRef, *, answered: bool = False) -> Claim | None:
    if pod.dra and not answered:
        return make_claim(Evidence.KUBELET_IDS, ref, [pod.dra], "dra")
    if not pod.ids:
        return None
    if answered and pod.answer is not None:
        return make_claim(
            Evidence.PLUGIN_ANSWER,
            ref,
            pod.answer,
            "visible",
            resource=pod.resource,
            asked=pod.ids,
        )
    return make_claim(Evidence.KUBELET_IDS, ref, pod.ids, "plugin", resource=pod.resource)


def offered(world: World, without: Collection[str] = ()) -> ResourcesAdvertised:
    ids: dict[str, list[str]] = {}
    for uuid, form in world.form.items():
        if uuid in without:
            continue
        if form == "whole":
            ids.setdefault(GPU, []).append(uuid)
        elif form == "replicas":
            ids.setdefault("nvidia.com/gpu.shared", []).extend(f"{uuid}::{n}" for n in range(4))
        elif form == "shared" and world.scheduler in PLACEHOLDER:
            placeholders = [PLACEHOLDER[world.scheduler].format(uuid, n) for n in range(10)]
            ids.setdefault(RESOURCE[world.scheduler], []).extend(placeholders)
    if world.slices:
        ids["nvidia.com/mig-1g.5gb"] = [one.uuid for one in world.slices]
    return ResourcesAdvertised(
        tuple(
            AdvertisedResource(resource, tuple(RawDeviceId("plugin", text) for text in texts))
            for resource, texts in ids.items()
        ),
        GOOD_FOR * NS,
    )


def pods(world: World, *, lying: bool) -> list[Any]:
    map_pod = PodMapper(Options(), Timestamps(lambda: at(0)), lambda _: None)
    return [map_pod(raw(one, lying=lying)) for one in world.pods]


def raw(pod: RealPod, *, lying: bool) -> dict[str, Any]:
    lie = pod.lie if lying else Lie()
    return {
        "metadata": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "labels": pod.labels | lie.labels,
            "annotations": pod.annotations | lie.annotations,
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "resources": {"limits": pod.requests}}],
            "resourceClaims": [{"name": "gpu"}] if pod.dra else [],
        },
        "status": {"phase": "Running", "startTime": STARTED},
    }


def containers(world: World, *, lying: bool) -> ContainersReplaced:
    talk = PluginConnection()
    sandboxes, made = [], []
    for one in world.pods:
        lie = one.lie if lying else Lie()
        sandbox = f"sandbox-{one.uid}"
        sandboxes.append(sandbox_of(one, lying=lying))
        nodes = [wire.gpu_node(minor) for minor in one.nodes]
        mounts = [wire.message({1: path, 2: "bind", 3: "/dev/null"}) for path in lie.mounts]
        made.append(
            wire.message(
                {
                    1: f"c-{one.uid}",
                    2: sandbox,
                    3: "main",
                    4: 3,
                    # CRI-O copies a pod's annotations to its containers.
                    6: one.annotations | lie.annotations if lie.copied else {},
                    8: [*one.env, *lie.env],
                    9: mounts,
                    11: wire.message({2: nodes}),
                    20: [wire.message({1: name}) for name in one.cdi],
                }
            )
        )
    talk.synchronize(sandboxes, made)
    return ContainersReplaced(tuple(talk.running().values()), GOOD_FOR * NS)


def sandbox_of(pod: RealPod, *, lying: bool) -> bytes:
    lie = pod.lie if lying else Lie()
    return wire.message(
        {
            1: f"sandbox-{pod.uid}",
            2: pod.name,
            3: pod.uid,
            4: pod.namespace,
            5: lie.labels,
            6: pod.annotations | lie.annotations,
        }
    )


def injected(world: World, node: SampledCluster, pod: RealPod) -> list[int]:
    """Return the minor numbers of the GPUs that a new container gets by its pod's annotation."""
    accepted = AcceptedAnnotations()
    accepted.replace("pods", pods(world, lying=True))
    accepted.gpus = by_minor(node.snapshot().layout.attributions.values(), node.join.plugin_managed)
    talk = PluginConnection(partial(koordinator_adjustment, accepted))
    new = wire.subject(sandbox_of(pod, lying=True), wire.container())
    _, answer = talk.call("CreateContainer", new)
    if not answer:
        return []
    [pair] = [each for each in wire.fields(wire.one(answer, 1))[4] if isinstance(each, bytes)]
    return [int(minor) for minor in wire.one(pair, 2).decode().split(",")]
