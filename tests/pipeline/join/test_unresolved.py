"""Ids that match no device, and lists of the largest size."""

import time

import pytest

from pipeline.model import NS, Claim, Pod, PodContainer, PodInfo, PodsReplaced, SourceRemoved
from tests.support.nodes import Node, at, claim, claims, gpu, kubelet_claim, uuid_of

GPUS = [gpu(index) for index in range(4)]


class TestUnresolved:
    def test_ids_before_the_first_enumeration_are_not_unresolved(self) -> None:
        node = Node()
        node.podlist(claim("a", uuid_of(0)))
        assert node.snapshot().sources["podlist"].unresolved == ()
        node.has(*GPUS)
        assert node.snapshot().sources["podlist"].unresolved_total == 0
        attribution = node.snapshot().layout.attributions[uuid_of(0)]
        assert [holder.subject.pod for holder in attribution.holders] == ["a"]

    def test_an_unresolved_id_counts_once_while_it_is_reported(self) -> None:
        node = Node()
        node.has(*GPUS)
        for _ in range(3):
            node.podlist(claim("a", "GPU-x", "GPU-y"))
            node.podlist(claim("a", "GPU-x", "GPU-y"), claim("b", uuid_of(0)))
        assert node.snapshot().sources["podlist"].unresolved_total == 2
        node.podlist()
        node.podlist(claim("a", "GPU-x"))
        assert node.snapshot().sources["podlist"].unresolved_total == 3

    @pytest.mark.slow
    def test_the_source_state_lists_a_thousand_ids_and_counts_all(self) -> None:
        node = Node()
        node.has(*GPUS)
        ids = [f"GPU-{n:05}" for n in range(2500)]
        node.podlist(*(claim(id_, id_) for id_ in reversed(ids)))
        state = node.snapshot().sources["podlist"]
        assert [raw.text for raw in state.unresolved] == ids[:1000]
        assert state.unresolved_total == 2500
        node.podlist(*(claim(id_, id_) for id_ in ids[:2000]), claim("a", "GPU-99999"))
        assert node.snapshot().sources["podlist"].unresolved_total == 2501

    def test_the_list_of_ids_is_the_same_object_while_unchanged(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.podlist(claim("a", "GPU-x", "GPU-y"))
        before = node.snapshot().sources["podlist"].unresolved
        node.podlist(claim("b", "GPU-y"), claim("c", "GPU-x", uuid_of(0)))
        assert node.snapshot().sources["podlist"].unresolved is before

    def test_each_source_counts_its_own_ids(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.say(claims(claim("a", "GPU-x")), "one", "podlist")
        node.say(claims(claim("b", "GPU-x"), claim("a", "7", scheme="minor")), "two", "podlist")
        states = node.snapshot().sources
        assert [len(states[name].unresolved) for name in ("one", "two")] == [1, 2]
        node.say(SourceRemoved(), "one", "podlist")
        node.say(claims(claim("a", "GPU-x")), "one", "podlist")
        assert node.snapshot().sources["one"].unresolved_total == 1


LARGE = 3_000
LONG = {
    "unknown ids": [claim(f"p-{n}", f"GPU-{n:032x}") for n in range(LARGE)],
    "one device": [claim(f"p-{n}", uuid_of(0)) for n in range(LARGE)],
    "replicas": [kubelet_claim(f"p-{n}", f"{uuid_of(n % 4)}::{n}") for n in range(LARGE)],
    "wholes": [kubelet_claim(f"p-{n}", uuid_of(n % 4)) for n in range(LARGE)],
    "one pod": [claim("p", uuid_of(n % 4), container=f"c-{n}") for n in range(LARGE)],
    "one container": [claim("p", uuid_of(n % 4), share=1 / (n + 1)) for n in range(LARGE)],
    "one claim": [claim("p", *(f"{uuid_of(n % 4)}" for n in range(LARGE)))],
}


@pytest.mark.slow
@pytest.mark.parametrize("reported", LONG.values(), ids=LONG.keys())
def test_a_long_list_is_resolved_quickly(reported: list[Claim]) -> None:
    node = Node()
    node.has(*GPUS)
    spent = []
    for turn in (reported, reported[::-1], reported[1:], []):
        start = time.thread_time()
        node.podlist(*turn)
        node.snapshot()
        spent.append(time.thread_time() - start)
    # About 60 ms, a few times that on a busy machine. Quadratic time would be above 10 s.
    assert max(spent) < 1.5


@pytest.mark.slow
def test_a_pod_with_many_containers_is_resolved_quickly() -> None:
    """Their number is limited by the size of an object in the API server."""
    many = tuple(
        PodContainer(f"c-{n}", "init" if n % 2 else "app", ended=n % 4 == 1) for n in range(2000)
    )
    node = Node()
    node.has(*GPUS)
    pod = Pod(PodInfo("u", "ml", "p"), at(0), containers=many)
    node.say(PodsReplaced((pod,), 300 * NS), "pods", "pods")
    start = time.thread_time()
    node.podlist(*(claim("p", uuid_of(0), container=one.name) for one in many))
    assert len(node.snapshot().layout.attributions[uuid_of(0)].holders) == 1500
    assert time.thread_time() - start < 5
