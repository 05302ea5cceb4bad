"""Ids that fit no device, and lists as long as they may be."""

import time

import pytest

from pipeline.model import NS, Claim, Pod, PodContainer, PodInfo, PodsReplaced, SourceRemoved
from tests.support.nodes import Node, at, claim, claims, gpu, kubelet_claim, uuid_of

GPUS = [gpu(index) for index in range(4)]


class TestUnresolved:
    def test_ids_before_the_first_enumeration_are_not_wrong(self) -> None:
        node = Node()
        node.podlist(claim("a", uuid_of(0)))
        assert node.snapshot().sources["podlist"].unresolved == ()
        node.has(*GPUS)
        assert node.snapshot().sources["podlist"].unresolved_total == 0
        attribution = node.snapshot().layout.attributions[uuid_of(0)]
        assert [holder.subject.pod for holder in attribution.holders] == ["a"]

    def test_each_counts_once_for_as_long_as_it_is_there(self) -> None:
        node = Node()
        node.has(*GPUS)
        for _ in range(3):
            node.podlist(claim("a", "GPU-x", "GPU-y"))
            node.podlist(claim("a", "GPU-x", "GPU-y"), claim("b", uuid_of(0)))
        assert node.snapshot().sources["podlist"].unresolved_total == 2
        node.podlist()
        node.podlist(claim("a", "GPU-x"))
        assert node.snapshot().sources["podlist"].unresolved_total == 3

    def test_the_state_names_the_first_thousand_and_counts_all(self) -> None:
        node = Node()
        node.has(*GPUS)
        ids = [f"GPU-{n:05}" for n in range(2500)]
        node.podlist(*(claim(id_, id_) for id_ in reversed(ids)))
        state = node.snapshot().sources["podlist"]
        assert [raw.text for raw in state.unresolved] == ids[:1000]
        assert state.unresolved_total == 2500
        node.podlist(*(claim(id_, id_) for id_ in ids[:2000]), claim("a", "GPU-99999"))
        assert node.snapshot().sources["podlist"].unresolved_total == 2501

    def test_the_tuple_is_the_same_object_while_the_ids_are_the_same(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.podlist(claim("a", "GPU-x", "GPU-y"))
        before = node.snapshot().sources["podlist"].unresolved
        node.podlist(claim("b", "GPU-y"), claim("c", "GPU-x", uuid_of(0)))
        assert node.snapshot().sources["podlist"].unresolved is before

    def test_each_source_counts_its_own(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.say(claims(claim("a", "GPU-x")), "one", "podlist")
        node.say(claims(claim("b", "GPU-x"), claim("a", "7", scheme="minor")), "two", "podlist")
        states = node.snapshot().sources
        assert [len(states[name].unresolved) for name in ("one", "two")] == [1, 2]
        node.say(SourceRemoved(), "one", "podlist")
        node.say(claims(claim("a", "GPU-x")), "one", "podlist")
        assert node.snapshot().sources["one"].unresolved_total == 1


LARGE = 10_000
LONG = {
    "unknown ids": [claim(f"p-{n}", f"GPU-{n:032x}") for n in range(LARGE)],
    "one device": [claim(f"p-{n}", uuid_of(0)) for n in range(LARGE)],
    "replicas": [kubelet_claim(f"p-{n}", f"{uuid_of(n % 4)}::{n}") for n in range(LARGE)],
    "wholes": [kubelet_claim(f"p-{n}", uuid_of(n % 4)) for n in range(LARGE)],
    "one pod": [claim("p", uuid_of(n % 4), container=f"c-{n}") for n in range(LARGE)],
    "one container": [claim("p", uuid_of(n % 4), share=1 / (n + 1)) for n in range(LARGE)],
    "one claim": [claim("p", *(f"{uuid_of(n % 4)}" for n in range(LARGE)))],
}


@pytest.mark.parametrize("said", LONG.values(), ids=LONG.keys())
def test_the_largest_list_is_joined_quickly(said: list[Claim]) -> None:
    node = Node()
    node.has(*GPUS)
    spent = []
    for turn in (said, said[::-1], said[1:], []):
        began = time.thread_time()
        node.podlist(*turn)
        node.snapshot()
        spent.append(time.thread_time() - began)
    # Some 200 ms, on a busy machine a few times that; the square of the length would be minutes.
    assert max(spent) < 5


def test_a_pod_of_many_containers_is_joined_quickly() -> None:
    """Their number is limited by the size of what the API server stores."""
    many = tuple(
        PodContainer(f"c-{n}", "init" if n % 2 else "app", ended=n % 4 == 1) for n in range(2000)
    )
    node = Node()
    node.has(*GPUS)
    pod = Pod(PodInfo("u", "ml", "p"), at(0), containers=many)
    node.say(PodsReplaced((pod,), 300 * NS), "pods", "pods")
    began = time.thread_time()
    node.podlist(*(claim("p", uuid_of(0), container=one.name) for one in many))
    assert len(node.snapshot().layout.attributions[uuid_of(0)].holders) == 1500
    assert time.thread_time() - began < 5
