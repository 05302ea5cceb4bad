"""Pending events are resolved together, with the same result as one by one."""

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
from tests.pipeline.join.cluster import (
    A,
    Cluster,
    annotation_claim,
    claim_list,
    kubelet_claim,
    pod,
    pod_list,
    runtime_claim,
)
from tests.pipeline.join.sampled_cluster import SampledCluster
from tests.pipeline.join.worlds import WORLDS, World, feed, fresh, merged, shown
from tests.pipeline.usage.samples import MS, use
from tests.support.nodes import at


@given(WORLDS, st.integers(0, 1 << 30))
def test_a_burst_of_events_has_the_same_result_as_single_events(world: World, seed: int) -> None:
    envelopes = list(merged(world, Random(seed)))
    single = feed(fresh(), envelopes)
    burst = fresh()
    for envelope in envelopes:
        burst.join.apply(envelope, more_pending=True)
    burst.join.resolve_pending(envelopes[-1].at if envelopes else at(0))
    assert shown(burst) == shown(single)


@pytest.mark.slow
def test_a_burst_costs_one_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Cluster()
    node.pods()
    node.kubelet(*(kubelet_claim(f"p{number}", A) for number in range(500)))
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
    claim = runtime_claim(name, A, evidence=Evidence.RUNTIME_CDI)
    subject = PartialRef("ml", name, "main", f"uid-{name}", container_id)
    return ContainerStarted(RunningContainer(subject, claims=(claim,)))


def together(*events: tuple[float, str, Event]) -> list[Holding]:
    """Apply events that all are pending until a usage sample; return the ended holdings."""
    node = SampledCluster()
    node.pods()
    node.emit("runtime", ContainersReplaced((), 1000 * NS))
    node.sample(0, use(A, 0, None))
    for when, source, event in events:
        node.join.apply(Envelope(source, source, 1, at(when), event), more_pending=True)
    node.sample(5, use(A, 5, 0))
    return list(node.used().ended)


STARTS: dict[str, tuple[str, Event]] = {
    "container": ("runtime", started("a", "1")),
    "pod": ("pods", PodUpserted(pod("a", claims=[annotation_claim("a", A)]))),
    "claim": ("kubelet", claim_list(runtime_claim("a", A))),
}
ENDS: list[tuple[str, tuple[str, Event]]] = [
    ("container", ("runtime", ContainerStopped("1"))),
    ("container", ("runtime", ContainersReplaced((), 1000 * NS))),
    ("container", ("runtime", SourceRemoved())),
    ("pod", ("pods", PodDeleted("uid-a"))),
    ("pod", ("pods", PodUpserted(pod("a", ended=True, claims=[annotation_claim("a", A)])))),
    ("pod", ("pods", pod_list())),
    ("claim", ("kubelet", claim_list())),
]


@pytest.mark.parametrize(("kind", "end"), ENDS)
def test_a_holding_that_starts_and_ends_within_a_burst_is_counted(
    kind: str, end: tuple[str, Event]
) -> None:
    [one] = together((1.0, *STARTS[kind]), (1.1, "", ClockTicked()), (1.3, *end))
    assert (one.subject.pod, one.start, one.end) == ("a", at(1), at(1.3))
    assert (one.counted_ns, one.gap_ns, one.held_ns) == (300 * MS, 0, 300 * MS)


@pytest.mark.parametrize("later", [ClockTicked(), PodUpserted(pod("other")), ClaimsReplaced((), 1)])
def test_a_pending_event_counts_from_the_time_of_the_event(later: Event) -> None:
    """The time of a later event in the same burst does not matter."""
    node = SampledCluster()
    node.emit("runtime", ContainersReplaced((), 1000 * NS))
    for when, source, event in (
        (1.0, "runtime", started("a", "1")),
        (1.3, "pods", later),
        (1.6, "runtime", started("b", "2")),
        (1.9, "pods", later),
    ):
        node.join.apply(Envelope(source, source, 1, at(when), event), more_pending=True)
    node.join.resolve_pending(at(4))
    found = {holder.subject.pod: holder.since for holder in node.attribution(A).holders}
    assert found == {"a": at(1), "b": at(1.6)}
