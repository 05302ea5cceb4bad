"""What the sources tell of a node on which an author lies, through their real readers."""

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
from sources.nri.koordinator_injection import koordinator_adjustment
from sources.pods.options import Options
from sources.pods.pod_mapper import PodMapper
from sources.pods.timestamps import Timestamps
from tests.fakes.nri import wire
from tests.pipeline.join.attacks import GPU, PLACEHOLDER, RESOURCE, STARTED, Lie, Made, World
from tests.pipeline.join.cluster import GOOD_FOR, said
from tests.pipeline.join.test_xid_table import report
from tests.pipeline.join.watched import Watched
from tests.pipeline.usage.looking import use
from tests.sources.nri.talking import Talk
from tests.support.joints import joints
from tests.support.nodes import at


def given_out(world: World, *, lying: bool) -> Watched:
    """Return the node once all sources have spoken, and each device had a look and an XID error."""
    node = Watched([*world.gpus, *world.slices])
    node.tell("gpus", joints(*world.gpus))
    node.tell("pods", PodsReplaced(tuple(pods(world, lying=lying)), GOOD_FOR * NS))
    names = [(RawDeviceId("dra", name), uuid) for uuid, name in world.published.items()]
    node.tell("pods", DeviceAliasesReplaced(tuple(names)))
    if "kubelet" in world.sources:
        node.tell("kubelet", offered(world))
        node.tell("kubelet", offered(world, without=world.withdrawn))
        claims = [claim(one, PartialRef(one.namespace, one.name, "main")) for one in world.pods]
        node.tell("kubelet", ClaimsReplaced(tuple(filter(None, claims)), GOOD_FOR * NS))
    if "checkpoint" in world.sources:
        claims = [
            claim(one, PartialRef(uid=one.uid, container="main"), answered=True)
            for one in world.pods
        ]
        node.tell("checkpoint", ClaimsReplaced(tuple(filter(None, claims)), GOOD_FOR * NS))
    if "runtime" in world.sources:
        node.tell("runtime", containers(world, lying=lying))
    every = [d.uuid for d in [*world.gpus, *world.slices]]
    node.look(5, *(use(uuid, 5, None) for uuid in every))
    node.look(15, *(use(uuid, 15, 5) for uuid in every))
    node.seconds = 16
    node.tell("gpus", XidsReported(tuple(report(16, 79, device=uuid) for uuid in every)))
    node.look(25, *(use(uuid, 25, 15) for uuid in every))
    return node


def claim(pod: Made, ref: PartialRef, *, answered: bool = False) -> Claim | None:
    if pod.dra and not answered:
        return said(Evidence.KUBELET_IDS, ref, [pod.dra], "dra")
    if not pod.ids:
        return None
    if answered and pod.answer is not None:
        return said(
            Evidence.PLUGIN_ANSWER,
            ref,
            pod.answer,
            "visible",
            resource=pod.resource,
            asked=pod.ids,
        )
    return said(Evidence.KUBELET_IDS, ref, pod.ids, "plugin", resource=pod.resource)


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
            made = [PLACEHOLDER[world.scheduler].format(uuid, n) for n in range(10)]
            ids.setdefault(RESOURCE[world.scheduler], []).extend(made)
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
    distil = PodMapper(Options(), Timestamps(lambda: at(0)), lambda _: None)
    return [distil(raw(one, lying=lying)) for one in world.pods]


def raw(pod: Made, *, lying: bool) -> dict[str, Any]:
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
    talk = Talk()
    made_pods, made = [], []
    for one in world.pods:
        lie = one.lie if lying else Lie()
        sandbox = f"sandbox-{one.uid}"
        made_pods.append(sandbox_of(one, lying=lying))
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
    talk.synchronize(made_pods, made)
    return ContainersReplaced(tuple(talk.running().values()), GOOD_FOR * NS)


def sandbox_of(pod: Made, *, lying: bool) -> bytes:
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


def injected(world: World, node: Watched, pod: Made) -> list[int]:
    """The minor numbers of the GPUs that a new container of a pod gets by its annotation."""
    accepted = AcceptedAnnotations()
    accepted.replace("pods", pods(world, lying=True))
    accepted.gpus = by_minor(node.snapshot().layout.attributions.values(), node.join.plugin_managed)
    talk = Talk(partial(koordinator_adjustment, accepted))
    new = wire.subject(sandbox_of(pod, lying=True), wire.container())
    _, answer = talk.call("CreateContainer", new)
    if not answer:
        return []
    [pair] = [each for each in wire.fields(wire.one(answer, 1))[4] if isinstance(each, bytes)]
    return [int(minor) for minor in wire.one(pair, 2).decode().split(",")]
