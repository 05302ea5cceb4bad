"""Events that wait together are worked out once, and come to what they come to one by one."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.join import attribution, resolution
from pipeline.model import Envelope, PodUpserted
from tests.pipeline.join.cluster import A, Cluster, listed, pod
from tests.pipeline.join.worlds import WORLDS, World, feed, fresh, merged, shown
from tests.support.nodes import at


@given(WORLDS, st.integers(0, 1 << 30))
def test_together_they_come_to_the_same(world: World, seed: int) -> None:
    envelopes = list(merged(world, Random(seed)))
    single = feed(fresh(), envelopes)
    burst = fresh()
    for envelope in envelopes:
        burst.join.apply(envelope, more=True)
    burst.join.settle(envelopes[-1].at if envelopes else at(0))
    assert shown(burst) == shown(single)


def test_a_burst_costs_one_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Cluster()
    node.pods()
    node.kubelet(*(listed(f"p{number}", A) for number in range(500)))
    resolved = 0
    resolve = resolution.resolve

    def counted(*args: object, **more: object) -> object:
        nonlocal resolved
        resolved += 1
        return resolve(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(attribution, "resolve", counted)
    for number in range(500):
        event = PodUpserted(pod(f"p{number}"))
        node.join.apply(Envelope("pods", "pods", number, at(1), event), more=number < 499)
    assert resolved == 1
    assert not node.join.unsettled
