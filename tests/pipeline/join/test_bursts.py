"""Events that wait together are worked out once, and come to what they come to one by one."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.join import attribution, holder_resolution
from pipeline.model import (
    NS,
    ClaimsReplaced,
    ClockTicked,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    Envelope,
    Event,
    Evidence,
    Holding,
    PartialRef,
    PodDeleted,
    PodUpserted,
    RunningContainer,
    SourceRemoved,
)
from tests.pipeline.join.cluster import A, Cluster, annotated, listed, pod, ran, relist, whole
from tests.pipeline.join.watched import Watched
from tests.pipeline.join.worlds import WORLDS, World, feed, fresh, merged, shown
from tests.pipeline.usage.looking import MS, use
from tests.support.nodes import at


@given(WORLDS, st.integers(0, 1 << 30))
def test_together_they_come_to_the_same(world: World, seed: int) -> None:
    envelopes = list(merged(world, Random(seed)))
    single = feed(fresh(), envelopes)
    burst = fresh()
    for envelope in envelopes:
        burst.join.apply(envelope, more_pending=True)
    burst.join.resolve_pending(envelopes[-1].at if envelopes else at(0))
    assert shown(burst) == shown(single)


def test_a_burst_costs_one_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Cluster()
    node.pods()
    node.kubelet(*(listed(f"p{number}", A) for number in range(500)))
    resolved = 0
    resolve = holder_resolution.resolve

    def counted(*args: object, **more: object) -> object:
        nonlocal resolved
        resolved += 1
        return resolve(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(attribution, "resolve", counted)
    for number in range(500):
        event = PodUpserted(pod(f"p{number}"))
        node.join.apply(Envelope("pods", "pods", number, at(1), event), more_pending=number < 499)
    assert resolved == 1
    assert not node.join.has_pending_changes


def started(name: str, container_id: str) -> ContainerStarted:
    claim = ran(name, A, evidence=Evidence.RUNTIME_CDI)
    subject = PartialRef("ml", name, "main", f"uid-{name}", container_id)
    return ContainerStarted(RunningContainer(subject, claims=(claim,)))


def together(*given_out: tuple[float, str, Event]) -> list[Holding]:
    """What has ended on a device after events that all waited, and a look."""
    node = Watched()
    node.pods()
    node.tell("runtime", ContainersReplaced((), 1000 * NS))
    node.look(0, use(A, 0, None))
    for when, source, event in given_out:
        node.join.apply(Envelope(source, source, 1, at(when), event), more_pending=True)
    node.look(5, use(A, 5, 0))
    return list(node.used().ended)


CAME: dict[str, tuple[str, Event]] = {
    "container": ("runtime", started("a", "1")),
    "pod": ("pods", PodUpserted(pod("a", claims=[annotated("a", A)]))),
    "claim": ("kubelet", whole(ran("a", A))),
}
WENT: list[tuple[str, tuple[str, Event]]] = [
    ("container", ("runtime", ContainerStopped("1"))),
    ("container", ("runtime", ContainersReplaced((), 1000 * NS))),
    ("container", ("runtime", SourceRemoved())),
    ("pod", ("pods", PodDeleted("uid-a"))),
    ("pod", ("pods", PodUpserted(pod("a", ended=True, claims=[annotated("a", A)])))),
    ("pod", ("pods", relist())),
    ("claim", ("kubelet", whole())),
]


@pytest.mark.parametrize(("what", "went"), WENT)
def test_what_comes_and_goes_while_both_wait_was_there(what: str, went: tuple[str, Event]) -> None:
    [one] = together((1.0, *CAME[what]), (1.1, "", ClockTicked()), (1.3, *went))
    assert (one.subject.pod, one.start, one.end) == ("a", at(1), at(1.3))
    assert (one.counted_ns, one.gap_ns, one.held_ns) == (300 * MS, 0, 300 * MS)


@pytest.mark.parametrize("later", [ClockTicked(), PodUpserted(pod("other")), ClaimsReplaced((), 1)])
def test_what_waits_counts_from_when_it_was_said(later: Event) -> None:
    """Not from the moment of what waits behind it."""
    node = Watched()
    node.tell("runtime", ContainersReplaced((), 1000 * NS))
    for when, source, event in (
        (1.0, "runtime", started("a", "1")),
        (1.3, "pods", later),
        (1.6, "runtime", started("b", "2")),
        (1.9, "pods", later),
    ):
        node.join.apply(Envelope(source, source, 1, at(when), event), more_pending=True)
    node.join.resolve_pending(at(4))
    found = {holder.subject.pod: holder.since for holder in node.on(A).holders}
    assert found == {"a": at(1), "b": at(1.6)}
