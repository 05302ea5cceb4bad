"""Properties that hold for any reports of the sources, in any order of arrival."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.join.claim_resolution import ResolutionTime
from pipeline.join.device_index import DeviceIndex
from pipeline.join.dra_name_history import DraNameHistory
from pipeline.join.holder_resolution import Resolution, resolve
from pipeline.join.pod_identity import PodIdentities
from pipeline.join.pod_table import IdentifiedContainer
from pipeline.model import Claim, ClaimsReplaced, Evidence, Instant
from tests.pipeline.join.cluster import GPUS
from tests.pipeline.join.reference_holders import expected
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
from tests.support.examples import examples

SEEDS = st.integers(0, 1 << 30)
EXAMPLES = settings(max_examples=examples(300), deadline=None)


@pytest.mark.slow
@given(WORLDS, SEEDS, SEEDS)
@EXAMPLES
def test_the_order_of_sources_does_not_matter(world: World, one: int, other: int) -> None:
    """Only the order of the events within each source is fixed."""
    first, second = [
        shown(feed(fresh(), merged(world, Random(seed)), snapshots=True)) for seed in (one, other)
    ]
    assert first == second


@pytest.mark.slow
@given(WORLDS, SEEDS)
@EXAMPLES
def test_a_long_history_gives_the_same_result_as_its_last_state(world: World, seed: int) -> None:
    long = feed(fresh(), merged(world, Random(seed)), snapshots=True)
    short = feed(fresh(), Tables.of(world).envelopes())
    assert shown(long)["holders"] == shown(short)["holders"]
    assert shown(long)["unresolved"] == shown(short)["unresolved"]


@pytest.mark.slow
@given(WORLDS, SEEDS)
# A pod that has all of the device according to itself, next to one with an unknown part.
@example(Author(630661, 4).world(), 0)
@EXAMPLES
def test_holders_equal_those_of_the_reference_implementation(world: World, seed: int) -> None:
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
def test_no_impossible_holders_are_shown(world: World, seed: int) -> None:
    """This is checked after each event, and not only at the end."""
    node, tables = fresh(), Tables()
    running: set[str] = set()
    for envelope in merged(world, Random(seed)):
        feed(node, [envelope])
        when = (envelope.at.mono_ns - node.snapshot().at.mono_ns) / 1e9
        tables.take(envelope.source, when, envelope.event)
        if envelope.source == "runtime" and isinstance(envelope.event, ClaimsReplaced):
            # A pod with running containers exists, though the API server has forgotten it: claims
            # of sources that know only names may mean it too.
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
                    known_pod = tables.pods.get(holder.subject.uid)
                    assert known_pod is None or not known_pod.ended
                    assert known_pod is None or holder.pod == known_pod.info


@pytest.mark.slow
@given(WORLDS, SEEDS)
@EXAMPLES
def test_a_device_that_the_kubelet_allocated_to_two_pods_has_a_conflict(
    world: World, seed: int
) -> None:
    node = feed(fresh(), merged(world, Random(seed)))
    tables = Tables.of(world)
    index = DeviceIndex(node.snapshot().layout.attributions[u].device for u in all_uuids(node))
    for uuid, on in node.snapshot().layout.attributions.items():
        uids = {h.subject.uid for h in on.holders if h.evidence == Evidence.KUBELET_IDS}
        listed_whole = {
            claim.subject.pod
            for claim in (tables.claims["kubelet"].claims if "kubelet" in tables.claims else ())
            for raw in claim.devices
            if (found := index.resolve(raw)) is not None
            and found.is_whole_device
            and found.uuid == uuid
        }
        names = {h.subject.pod for h in on.holders if h.source == "kubelet"}
        if len(uids) > 1 and names & listed_whole and not divisible(tables, index, uuid):
            assert on.conflicts


def all_uuids(node: object) -> list[str]:
    return list(node.snapshot().layout.attributions)  # type: ignore[attr-defined]


def divisible(tables: Tables, index: DeviceIndex, uuid: str) -> bool:
    """Whether any claim is on a part of the device."""
    claims = [claim for event in tables.claims.values() for claim in event.claims]
    claims += [claim for pod in tables.pods.values() for claim in pod.claims]
    return any(
        (claim.share or 1) < 1 or found.replica or found.is_placeholder
        for claim in claims
        for raw in claim.devices
        if (found := index.resolve(raw)) is not None and found.uuid == uuid
    )


NODES = st.sampled_from([[GPUS[0]], GPUS[:2], [*GPUS[:2], SLICE]])


@given(SEEDS, NODES, NODES)
def test_the_previous_resolution_does_not_change_the_result(  # type: ignore[no-untyped-def]
    seed, devices, others
) -> None:
    def identify(_source: str, claim: Claim) -> IdentifiedContainer:
        return IdentifiedContainer(claim.subject, None)

    author = Author(seed, 4)
    claims = {source: author.claims(source) for source in CLAIMING}

    def never(_source: str) -> None:
        """Return None: no source has a time of confirmation."""

    def resolved(index: DeviceIndex, previous: Resolution | None = None) -> Resolution:
        return resolve(
            claims,
            index,
            identify,
            pod_identities=PodIdentities(),
            dra_names=DraNameHistory(lambda _: None),
            moment=ResolutionTime(Instant(0, 0), never, never, claims.keys()),
            previous=previous,
        )

    before = resolved(DeviceIndex(devices))
    for source in author.some(CLAIMING):
        claims[source] = author.claims(source)
    index = DeviceIndex(others)
    assert resolved(index, before) == resolved(index)
