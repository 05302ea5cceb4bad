"""An author who lies about his own pods changes nothing of anybody else's.

`PODGPU_TRUST_WORLDS=20000 PODGPU_TRUST_SEED=0 pytest tests/pipeline/join/test_trust_properties.py`
tries as many worlds, one for each seed from the given one on.
"""

import os
from random import Random
from typing import Any

import pytest

from pipeline.model import Evidence, Holder
from tests.pipeline.join.attacked import given_out, injected
from tests.pipeline.join.attacks import AUTHOR, World
from tests.pipeline.join.watched import Watched

WORLDS = int(os.environ.get("PODGPU_TRUST_WORLDS", "300"))
SEED = int(os.environ.get("PODGPU_TRUST_SEED", "") or Random().randrange(1 << 40))
LIES = {Evidence.SCHEDULER_ANNOTATION, Evidence.RUNTIME_ENV}


def others(holders: tuple[Holder, ...]) -> list[Holder]:
    return [one for one in holders if one.subject.namespace != AUTHOR]


def parts(holders: tuple[Holder, ...]) -> list[Any]:
    """Who holds which part on which evidence; which container id is his is his to spoil."""
    return [(h.subject.namespace, h.subject.pod, h.share, h.evidence) for h in holders]


def accounts(node: Watched, uuid: str) -> list[Any]:
    usage = node.snapshot().usage
    assert usage is not None
    # A GPU that is divided into MIG instances has no account of its own.
    found = usage.devices[uuid].containers if uuid in usage.devices else ()
    return [(o.subject, o.held_ns, o.xids) for o in found if o.subject.namespace != AUTHOR]


def struck(node: Watched, uuid: str) -> list[Any]:
    return [
        (error.code, victim.subject, victim.holds)
        for error in node.snapshot().xids
        for victim in error.victims
        if victim.device == uuid and victim.subject.namespace != AUTHOR
    ]


def free(node: Watched) -> tuple[int, ...] | None:
    found = node.snapshot().availability
    return None if found is None else (found.free, found.part, found.held)


def free_gpus(node: Watched) -> set[str] | None:
    found = node.snapshot().availability
    if found is None:
        return None
    cards = zip(found.topology.cards, found.cards, strict=True)
    return {card.uuid for card, use in cards if use.state == "free"}


def check(seed: int) -> None:
    world = World(seed)
    quiet, loud = given_out(world, lying=False), given_out(world, lying=True)
    before = quiet.snapshot().layout.attributions
    after = loud.snapshot().layout.attributions
    # He may be one of the pods of the sharing scheduler, and then the lie reaches its GPUs.
    reach = world.managed if any(p.requested for p in mine(world)) else set()
    if "kubelet" not in world.sources:
        # Nobody tells which GPUs a device plugin offers: a request of any scheduler reaches those
        # that nobody holds.
        reach = reach | {u for u in after if not before[u].holders and reach_all(world)}
    joined = False
    for uuid, now in after.items():
        was = before[uuid]
        liars = [one for one in now.holders if one.subject.namespace == AUTHOR]
        for one in liars:
            pod = next(p for p in mine(world) if p.name == one.subject.pod)
            if uuid == world.reserved:
                # KAI's pods request by an annotation.
                assert pod.lie.annotations["gpu-fraction"] == "0.5", (seed, uuid, one)
            else:
                assert pod.requested, (seed, uuid, one)
        if uuid == world.reserved and liars:
            assert all(one.evidence in LIES for one in liars), (seed, uuid)
            joined = True
            continue
        if uuid in reach:
            new = [one for one in liars if one not in was.holders]
            assert all(one.evidence in LIES for one in new if one.evidence not in truth(was)), seed
            continue
        assert others(now.holders) == others(was.holders), (seed, uuid)
        assert parts(now.holders) == parts(was.holders), (seed, uuid)
        assert accounts(loud, uuid) == accounts(quiet, uuid), (seed, uuid)
        assert struck(loud, uuid) == struck(quiet, uuid), (seed, uuid)
    for pod in mine(world):
        for minor in injected(world, loud, pod):
            uuid = next((g.uuid for g in world.gpus if g.minor == minor), "")
            # What the plugin offers is the kubelet's to know, what it gave out is any source's.
            unknown = (
                world.form.get(uuid) in {"whole", "replicas", "mig"}
                and "kubelet" not in world.sources
            )
            assert uuid in world.managed or (unknown and not before[uuid].holders), (seed, uuid)
            assert pod.requested, (seed, pod)
    was_free, still_free = free_gpus(quiet), free_gpus(loud)
    if "kubelet" in world.sources and was_free is not None:
        # A pod of the sharing scheduler may leave unknown which of its GPUs it has.
        safe = was_free - world.managed - {world.reserved}
        assert safe <= (still_free or set()), (seed, safe, still_free)
    if not (reach or joined) and ("kubelet" in world.sources or not reach_all(world)):
        assert free(loud) == free(quiet), seed


def mine(world: World) -> list[Any]:
    return [one for one in world.pods if one.namespace == AUTHOR]


def reach_all(world: World) -> bool:
    return any(one.requested for one in mine(world))


def truth(was: Any) -> set[Evidence]:
    """The evidence of what he holds without a word of his."""
    return {one.evidence for one in was.holders if one.subject.namespace == AUTHOR}


@pytest.mark.timeout(3600)
def test_t01_t02_a_lie_moves_unattributed_gpu() -> None:
    for seed in range(SEED, SEED + WORLDS):
        check(seed)
