"""How claims become holders, for how long, and what of a snapshot stays the same object.

`test_holder_resolution.py` has the rule, `test_pod_table.py` the pods, `test_properties.py` what
always holds.
"""

from dataclasses import replace

import pytest

from pipeline.model import (
    NS,
    Claim,
    ClockTicked,
    Device,
    DevicesDiscovered,
    Envelope,
    Event,
    Evidence,
    PodUpserted,
    SourceAdded,
    SourceLost,
    SourceRemoved,
)
from tests.pipeline.join.cluster import Cluster, listed, pod
from tests.support.nodes import Node, at, claim, claims, gpu, mig, reading, uuid_of

GPUS = [gpu(0, minor=3), gpu(1, minor=2), gpu(2, minor=1), gpu(3, minor=0)]


def holders(node: Node) -> dict[str, list[str]]:
    """Pods by device uuid, for devices that are held."""
    return {
        uuid: [holder.subject.pod for holder in known.holders]
        for uuid, known in node.snapshot().layout.attributions.items()
        if known.holders
    }


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param([claim("a", uuid_of(1))], {1: ["a"]}, id="by uuid"),
        pytest.param([claim("a", uuid_of(1).upper())], {1: ["a"]}, id="uuid in capitals"),
        pytest.param([claim("a", "3", scheme="minor")], {0: ["a"]}, id="minor is not the index"),
        pytest.param([claim("a", "3", scheme="index")], {3: ["a"]}, id="index is not the minor"),
        pytest.param([claim("a", uuid_of(0), uuid_of(2))], {0: ["a"], 2: ["a"]}, id="two devices"),
        pytest.param(
            [claim("b", uuid_of(0)), claim("a", uuid_of(0))], {0: ["a", "b"]}, id="shared"
        ),
        pytest.param(
            [claim("a", uuid_of(0)), claim("a", "3", scheme="minor")],
            {0: ["a"]},
            id="one container, named twice",
        ),
        pytest.param(
            [claim("a", uuid_of(0)), claim("b", uuid_of(0), evidence=Evidence.RUNTIME_CDI)],
            {0: ["b"]},
            id="stronger evidence overrules",
        ),
        pytest.param(
            [claim("a", uuid_of(0)), claim("b", uuid_of(1), evidence=Evidence.RUNTIME_NODES)],
            {0: ["a"], 1: ["b"]},
            id="each device by itself",
        ),
        pytest.param([claim("a", "GPU-none"), claim("b", uuid_of(1))], {1: ["b"]}, id="unknown id"),
        pytest.param([claim("a", "7", scheme="minor")], {}, id="no such minor"),
        pytest.param([], {}, id="nobody"),
    ],
)
def test_claims_become_holders(said: list[Claim], expected: dict[int, list[str]]) -> None:
    node = Node()
    node.has(*GPUS)
    node.podlist(*said)
    assert holders(node) == {uuid_of(index): pods for index, pods in expected.items()}


def test_a_mig_instance_and_its_gpu_are_held_apart() -> None:
    node = Node()
    instance = mig(GPUS[0], gi=1)
    node.has(GPUS[0], instance)
    node.podlist(claim("slice", instance.uuid), claim("whole", GPUS[0].uuid))
    assert holders(node) == {instance.uuid: ["slice"], GPUS[0].uuid: ["whole"]}


def test_numbers_never_name_a_mig_instance() -> None:
    node = Node()
    node.has(GPUS[0], mig(GPUS[0], gi=1))
    node.podlist(claim("a", "0", scheme="index"))
    assert holders(node) == {GPUS[0].uuid: ["a"]}


class TestTime:
    def test_silence_ends_claims_after_their_time_and_not_before(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.say(claims(claim("a", uuid_of(0)), good_for=300), "podlist", "podlist")
        node.seconds = 300
        node.say(ClockTicked(), "", "clock")
        assert holders(node) == {uuid_of(0): ["a"]}
        node.seconds = 301
        node.say(ClockTicked(), "", "clock")
        assert holders(node) == {}

    def test_saying_it_again_confirms_it_and_changes_nothing(self) -> None:
        node = Node()
        node.has(*GPUS)
        said = claims(claim("a", uuid_of(0)), good_for=300)
        node.say(said, "podlist", "podlist")
        before = node.snapshot()
        node.seconds = 200
        assert node.say(said, "podlist", "podlist") is False
        node.seconds = 400
        node.say(ClockTicked(), "", "clock")
        after = node.snapshot()
        assert after.layout is before.layout
        state = after.sources["podlist"]
        assert state.confirmed_at is not None
        assert state.confirmed_at.mono_ns == before.at.mono_ns + 200 * NS

    def test_a_lost_source_keeps_its_word_until_it_is_no_longer_good(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.say(claims(claim("a", uuid_of(0)), good_for=300), "podlist", "podlist")
        node.seconds = 10
        node.say(SourceLost("no such file"), "podlist", "podlist")
        assert holders(node) == {uuid_of(0): ["a"]}
        state = node.snapshot().sources["podlist"]
        assert (state.up, state.reason) == (False, "no such file")
        node.seconds = 301
        node.say(ClockTicked(), "", "clock")
        assert holders(node) == {}

    def test_a_removed_source_takes_its_word_along(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.podlist(claim("a", uuid_of(0)))
        node.say(SourceRemoved(), "podlist", "podlist")
        assert holders(node) == {}
        assert "podlist" not in node.snapshot().sources

    def test_since_is_when_it_was_first_heard_and_survives_other_changes(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.seconds = 5
        node.podlist(claim("a", uuid_of(0)))
        node.seconds = 50
        node.podlist(claim("a", uuid_of(0)), claim("b", uuid_of(0)))
        attribution = node.snapshot().layout.attributions[uuid_of(0)]
        assert [h.since.mono_ns // NS - 1000 for h in attribution.holders] == [5, 50]
        node.podlist(claim("b", uuid_of(0)))
        node.seconds = 60
        node.podlist(claim("a", uuid_of(0)), claim("b", uuid_of(0)))
        attribution = node.snapshot().layout.attributions[uuid_of(0)]
        assert [h.since.mono_ns // NS - 1000 for h in attribution.holders] == [60, 50]


def test_hints_name_the_devices_that_changed_hands_and_no_others() -> None:
    node = Node()
    node.has(*GPUS)
    node.podlist(claim("a", uuid_of(0)), claim("b", uuid_of(1)))
    outcome = node.join.apply(
        envelope_of(node, claims(claim("a", uuid_of(0)), claim("c", uuid_of(1))))
    )
    assert [sorted(hint.devices) for hint in outcome.hints] == [[uuid_of(1)]]


def test_a_pod_that_looks_different_has_not_changed_hands() -> None:
    node = Cluster()
    node.pods(pod("a"))
    node.kubelet(listed("a", uuid_of(0)))
    before = node.on(uuid_of(0))
    labelled = replace(pod("a"), info=replace(pod("a").info, labels=(("team", "x"),)))
    given_out = Envelope("pods", "pods", 99, at(0), PodUpserted(labelled))
    outcome = node.join.apply(given_out)
    assert (outcome.changed, outcome.hints) == (True, ())
    assert node.on(uuid_of(0)) != before


def envelope_of(node: Node, event: Event) -> Envelope:
    return Envelope("podlist", "podlist", 99, at(node.seconds), event)


def test_an_unchanged_attribution_is_the_same_object() -> None:
    node = Node()
    node.has(*GPUS)
    node.reads(*(reading(device, "power_watts", 1) for device in GPUS))
    before = node.snapshot().layout
    node.podlist(claim("a", uuid_of(1)))
    after = node.snapshot().layout
    same = [
        uuid
        for uuid in before.attributions
        if before.attributions[uuid] is after.attributions[uuid]
    ]
    assert same == [uuid_of(0), uuid_of(2), uuid_of(3)]
    kept = [old is new for old, new in zip(before.series, after.series, strict=True)]
    assert kept == [True, False, True, True]


def test_device_order_is_by_index_then_gi_then_ci() -> None:
    node = Node()
    devices: list[Device] = [
        gpu(1),
        mig(gpu(0), 2),
        mig(gpu(0), 1, ci=1),
        gpu(0),
        mig(gpu(0), 1, ci=0),
    ]
    node.has(*devices)
    order = [
        (
            known.device.index,
            known.device.mig
            and (known.device.mig.gpu_instance_id, known.device.mig.compute_instance_id),
        )
        for known in node.snapshot().layout.attributions.values()
    ]
    assert order == [(0, None), (0, (1, 0)), (0, (1, 1)), (0, (2, 0)), (1, None)]


class TestRelayedSources:
    """What a replay says for others lives and ends with the replay."""

    @staticmethod
    def relaying() -> Node:
        node = Node()
        node.say(SourceAdded(0), "replay", "replay")
        node.say(DevicesDiscovered(tuple(GPUS)), "gpus", "nvml", via="replay")
        node.say(claims(claim("a", uuid_of(0))), "podlist", "podlist", via="replay")
        return node

    def test_the_relaying_source_counts_as_heard(self) -> None:
        state = self.relaying().snapshot().sources["replay"]
        assert (state.up, state.has_reported, state.events) == (True, True, 2)

    def test_they_are_lost_with_it(self) -> None:
        node = self.relaying()
        node.say(SourceLost("finished"), "replay", "replay")
        sources = node.snapshot().sources
        assert {name: (s.up, s.reason) for name, s in sources.items()} == dict.fromkeys(
            ("replay", "gpus", "podlist"), (False, "finished")
        )

    def test_they_are_removed_with_it(self) -> None:
        node = self.relaying()
        node.say(SourceRemoved(), "replay", "replay")
        snapshot = node.snapshot()
        assert (snapshot.sources, snapshot.layout.attributions) == ({}, {})


class TestSinceWhenIsSeen:
    """Whether the beginning of a holding was told, or is only when it was first seen."""

    @pytest.mark.parametrize(
        ("given_out", "started", "since", "seen"),
        [
            # A claim without a time, of a pod that nobody tells of: when it was heard of.
            (None, None, 5, True),
            # The pod's start, or the claim's own time, which comes first; however long ago.
            (None, -300, -300, False),
            (3, None, 3, False),
            (3, -300, 3, False),
            # A time that is when it was heard of is a time that was told all the same.
            (5, None, 5, False),
        ],
    )
    def test_it_is_unless_the_claim_or_the_pod_says(
        self, given_out: float | None, started: float | None, since: float, seen: bool
    ) -> None:
        node = Cluster()
        node.seconds = 5
        if started is not None:
            node.pods(pod("a", started=started))
        node.kubelet(
            replace(listed("a", uuid_of(0)), since=None if given_out is None else at(given_out))
        )
        [holder] = node.on(uuid_of(0)).holders
        assert (holder.since.wall_ns, holder.since_observed) == (at(since).wall_ns, seen)

    def test_what_was_reported_later_is_reported_and_stays_so_when_it_no_longer_is(self) -> None:
        node, untold = Cluster(), listed("a", uuid_of(0))
        said: list[tuple[float, bool]] = []
        # What nobody holds for a while begins anew.
        for seconds, held in (
            (10, [untold]),
            (20, [replace(untold, since=at(7))]),
            (30, [untold]),
            (40, []),
            (50, [untold]),
        ):
            node.seconds = seconds
            node.kubelet(*held)
            said += [
                (h.since.mono_ns / NS - 1000, h.since_observed) for h in node.on(uuid_of(0)).holders
            ]
        assert said == [(10, True), (7, False), (7, False), (50, True)]
