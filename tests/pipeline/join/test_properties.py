"""What holds whatever the sources say, and in whatever order it is heard."""

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.join.device_index import DeviceIndex
from pipeline.join.holder_resolution import resolve
from pipeline.join.pod_table import IdentifiedContainer
from pipeline.model import Claim, ClaimsReplaced, Evidence
from tests.pipeline.join.cluster import GPUS
from tests.pipeline.join.reference import expected
from tests.pipeline.join.worlds import (
    CLAIMING,
    SLICE,
    WORLDS,
    Author,
    Tables,
    World,
    feed,
    fresh,
    merged,
    shown,
)

SEEDS = st.integers(0, 1 << 30)
EXAMPLES = settings(max_examples=300, deadline=None)


@given(WORLDS, SEEDS, SEEDS)
@EXAMPLES
def test_any_order_of_the_same_events_comes_to_the_same(world: World, one: int, other: int) -> None:
    """But for that of each source's own events, which is a source's to keep."""
    found = [shown(feed(fresh(), merged(world, Random(seed)), look=True)) for seed in (one, other)]
    assert found[0] == found[1]


@given(WORLDS, SEEDS)
@EXAMPLES
def test_step_by_step_is_the_same_as_all_at_once(world: World, seed: int) -> None:
    long = feed(fresh(), merged(world, Random(seed)), look=True)
    short = feed(fresh(), Tables.of(world).envelopes())
    assert shown(long)["holders"] == shown(short)["holders"]
    assert shown(long)["unresolved"] == shown(short)["unresolved"]


@given(WORLDS, SEEDS)
# A pod by whose word it has all of the device holds it beside one that has an unknown part.
@example(Author(630661, 4).world(), 0)
@EXAMPLES
def test_it_is_what_the_rule_says(world: World, seed: int) -> None:
    node = feed(fresh(), merged(world, Random(seed)))
    found = {
        uuid: (
            {h.subject: (h.share, h.source, h.evidence, list(h.replicas)) for h in on.holders},
            on.conflicts,
        )
        for uuid, on in node.snapshot().layout.attributions.items()
        if on.holders
    }
    assert found == expected(Tables.of(world))


@given(WORLDS, SEEDS)
@EXAMPLES
def test_nothing_impossible_is_ever_shown(world: World, seed: int) -> None:
    """After each event, and not at the end alone."""
    node, tables = fresh(), Tables()
    running: set[str] = set()
    for envelope in merged(world, Random(seed)):
        feed(node, [envelope])
        when = (envelope.at.mono_ns - node.snapshot().at.mono_ns) / 1e9
        tables.take(envelope.source, when, envelope.event)
        if envelope.source == "runtime" and isinstance(envelope.event, ClaimsReplaced):
            # Whose containers run is there, though the API server has forgotten it: then the word
            # of those who know names alone may mean it too.
            running = {claim.subject.uid for claim in envelope.event.claims}
        for on in node.snapshot().layout.attributions.values():
            subjects = [holder.subject for holder in on.holders]
            assert subjects == sorted(set(subjects))
            shares = [holder.share for holder in on.holders if holder.share is not None]
            assert all(0 < share <= 1 for share in shares)
            assert sum(shares) <= 1 + 1e-9
            if 1.0 in shares:
                assert len({(s.namespace, s.pod, s.uid) for s in subjects}) == 1 or on.conflicts
            for holder in on.holders:
                if holder.evidence > Evidence.RUNTIME_ENV:
                    forgotten = tables.gone.keys() - tables.pods.keys() - running
                    assert holder.subject.uid not in forgotten
                    given_out = tables.pods.get(holder.subject.uid)
                    assert given_out is None or not given_out.ended
                    assert given_out is None or holder.pod == given_out.info


@given(WORLDS, SEEDS)
@EXAMPLES
def test_a_device_that_the_kubelet_gave_to_two_pods_shows_the_conflict(
    world: World, seed: int
) -> None:
    node = feed(fresh(), merged(world, Random(seed)))
    tables = Tables.of(world)
    index = DeviceIndex(node.snapshot().layout.attributions[u].device for u in all_uuids(node))
    for uuid, on in node.snapshot().layout.attributions.items():
        uids = {h.subject.uid for h in on.holders if h.evidence == Evidence.KUBELET_IDS}
        given_whole = {
            claim.subject.pod
            for claim in (tables.claims["kubelet"].claims if "kubelet" in tables.claims else ())
            for raw in claim.devices
            if (found := index.resolve(raw)) is not None
            and found.is_whole_device
            and found.uuid == uuid
        }
        names = {h.subject.pod for h in on.holders if h.source == "kubelet"}
        if len(uids) > 1 and names & given_whole and not divisible(tables, index, uuid):
            assert on.conflicts


def all_uuids(node: object) -> list[str]:
    return list(node.snapshot().layout.attributions)  # type: ignore[attr-defined]


def divisible(tables: Tables, index: DeviceIndex, uuid: str) -> bool:
    """Whether any claim is on a part of the device."""
    claims = [claim for said in tables.claims.values() for claim in said.claims]
    claims += [claim for pod in tables.pods.values() for claim in pod.claims]
    return any(
        (claim.share or 1) < 1 or found.replica or found.is_placeholder
        for claim in claims
        for raw in claim.devices
        if (found := index.resolve(raw)) is not None and found.uuid == uuid
    )


NODES = st.sampled_from([[GPUS[0]], GPUS[:2], [*GPUS[:2], SLICE]])


@given(SEEDS, NODES, NODES)
def test_an_earlier_resolution_spares_work_and_changes_nothing(  # type: ignore[no-untyped-def]
    seed, devices, others
) -> None:
    def identify(_source: str, claim: Claim) -> IdentifiedContainer:
        return IdentifiedContainer(claim.subject, None)

    author = Author(seed, 4)
    said = {source: author.claims(source) for source in CLAIMING}
    before = resolve(said, DeviceIndex(devices), identify)
    for source in author.some(CLAIMING):
        said[source] = author.claims(source)
    index = DeviceIndex(others)
    assert resolve(said, index, identify, previous=before) == resolve(said, index, identify)
