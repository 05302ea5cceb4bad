"""Lies of an author about the author's own pods do not change what the join shows of other pods.

`PODGPU_TRUST_WORLDS=20000 PODGPU_TRUST_SEED=0 pytest tests/pipeline/join/test_trust_properties.py`
tests that many worlds, one for each seed from the given seed on.
"""

import os
from random import Random
from typing import Any

import pytest

from pipeline.model import Evidence, Holder
from tests.pipeline.join.attack_reports import injected, reporting_node
from tests.pipeline.join.attacks import AUTHOR, World
from tests.pipeline.join.sampled_cluster import SampledCluster

WORLDS = int(os.environ.get("PODGPU_TRUST_WORLDS", "300"))
SEED = int(os.environ.get("PODGPU_TRUST_SEED", "") or Random().randrange(1 << 40))
LIES = {Evidence.SCHEDULER_ANNOTATION, Evidence.RUNTIME_ENV}


def others(holders: tuple[Holder, ...]) -> list[Holder]:
    return [one for one in holders if one.subject.namespace != AUTHOR]


def parts(holders: tuple[Holder, ...]) -> list[Any]:
    """Return holders, shares and evidence. The author may change the container ids of own pods."""
    return [(h.subject.namespace, h.subject.pod, h.share, h.evidence) for h in holders]


def accounts(node: SampledCluster, uuid: str) -> list[Any]:
    usage = node.snapshot().usage
    assert usage is not None
    # A GPU that is divided into MIG instances has no account.
    found = usage.devices[uuid].containers if uuid in usage.devices else ()
    return [(o.subject, o.held_ns, o.xids) for o in found if o.subject.namespace != AUTHOR]


def xid_victims(node: SampledCluster, uuid: str) -> list[Any]:
    return [
        (error.code, victim.subject, victim.holds)
        for error in node.snapshot().xids
        for victim in error.victims
        if victim.device == uuid and victim.subject.namespace != AUTHOR
    ]


def free(node: SampledCluster) -> tuple[int, ...] | None:
    found = node.snapshot().availability
    return None if found is None else (found.free, found.part, found.held)


def free_gpus(node: SampledCluster) -> set[str] | None:
    found = node.snapshot().availability
    if found is None:
        return None
    cards = zip(found.topology.cards, found.cards, strict=True)
    return {card.uuid for card, use in cards if use.state == "free"}


def check(seed: int) -> None:
    world = World(seed)
    honest, lying = reporting_node(world, lying=False), reporting_node(world, lying=True)
    before = honest.snapshot().layout.attributions
    after = lying.snapshot().layout.attributions
    # If the author's pods request the scheduler's resource, a lie may affect the scheduler's GPUs.
    affected = world.managed if any(p.requested for p in author_pods(world)) else set()
    if "kubelet" not in world.sources:
        # No source reports which GPUs a device plugin offers: a request of any scheduler may affect
        # GPUs without holders.
        affected = affected | {u for u in after if not before[u].holders and may_affect_any(world)}
    joined_group = False
    for uuid, now in after.items():
        was = before[uuid]
        liars = [one for one in now.holders if one.subject.namespace == AUTHOR]
        for one in liars:
            pod = next(p for p in author_pods(world) if p.name == one.subject.pod)
            if uuid == world.reserved:
                # KAI's pods request a GPU by an annotation.
                assert pod.lie.annotations["gpu-fraction"] == "0.5", (seed, uuid, one)
            else:
                assert pod.requested, (seed, uuid, one)
        if uuid == world.reserved and liars:
            assert all(one.evidence in LIES for one in liars), (seed, uuid)
            joined_group = True
            continue
        if uuid in affected:
            new = [one for one in liars if one not in was.holders]
            assert all(
                one.evidence in LIES for one in new if one.evidence not in true_evidence(was)
            ), seed
            continue
        assert others(now.holders) == others(was.holders), (seed, uuid)
        assert parts(now.holders) == parts(was.holders), (seed, uuid)
        assert accounts(lying, uuid) == accounts(honest, uuid), (seed, uuid)
        assert xid_victims(lying, uuid) == xid_victims(honest, uuid), (seed, uuid)
    for pod in author_pods(world):
        for minor in injected(world, lying, pod):
            uuid = next((g.uuid for g in world.gpus if g.minor == minor), "")
            # Only the kubelet reports what a plugin offers; any source reports what it allocated.
            unknown = (
                world.form.get(uuid) in {"whole", "replicas", "mig"}
                and "kubelet" not in world.sources
            )
            assert uuid in world.managed or (unknown and not before[uuid].holders), (seed, uuid)
            assert pod.requested, (seed, pod)
    was_free, still_free = free_gpus(honest), free_gpus(lying)
    if "kubelet" in world.sources and was_free is not None:
        # For a pod of the sharing scheduler, it may be unknown which of its GPUs it has.
        safe = was_free - world.managed - {world.reserved}
        assert safe <= (still_free or set()), (seed, safe, still_free)
    if not (affected or joined_group) and ("kubelet" in world.sources or not may_affect_any(world)):
        assert free(lying) == free(honest), seed


def author_pods(world: World) -> list[Any]:
    return [one for one in world.pods if one.namespace == AUTHOR]


def may_affect_any(world: World) -> bool:
    return any(one.requested for one in author_pods(world))


def true_evidence(was: Any) -> set[Evidence]:
    """Return the evidence of what the author's pods hold without any lie."""
    return {one.evidence for one in was.holders if one.subject.namespace == AUTHOR}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_t01_t02_a_lie_moves_no_gpu_of_another_pod() -> None:
    for seed in range(SEED, SEED + WORLDS):
        check(seed)
