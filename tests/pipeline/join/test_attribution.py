"""How claims become holders, for how long they are valid, and which objects a snapshot reuses.

`test_holder_resolution.py` tests the rules, `test_pod_table.py` the pods, `test_properties.py`
properties that always hold.
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
from tests.pipeline.join.cluster import Cluster, kubelet_claim, pod
from tests.support.nodes import Node, at, claim, claims, gpu, mig, reading, uuid_of

GPUS = [gpu(0, minor=3), gpu(1, minor=2), gpu(2, minor=1), gpu(3, minor=0)]


def holders(node: Node) -> dict[str, list[str]]:
    """Return the names of the pods that hold each device, by device UUID."""
    return {
        uuid: [holder.subject.pod for holder in known.holders]
        for uuid, known in node.snapshot().layout.attributions.items()
        if known.holders
    }


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param([claim("a", uuid_of(1))], {1: ["a"]}, id="UUID"),
        pytest.param([claim("a", uuid_of(1).upper())], {1: ["a"]}, id="UUID in upper case"),
        pytest.param([claim("a", "3", scheme="minor")], {0: ["a"]}, id="minor number"),
        pytest.param([claim("a", "3", scheme="index")], {3: ["a"]}, id="index"),
        pytest.param([claim("a", uuid_of(0), uuid_of(2))], {0: ["a"], 2: ["a"]}, id="two devices"),
        pytest.param(
            [claim("b", uuid_of(0)), claim("a", uuid_of(0))], {0: ["a", "b"]}, id="two pods"
        ),
        pytest.param(
            [claim("a", uuid_of(0)), claim("a", "3", scheme="minor")],
            {0: ["a"]},
            id="one container in two claims",
        ),
        pytest.param(
            [claim("a", uuid_of(0)), claim("b", uuid_of(0), evidence=Evidence.RUNTIME_CDI)],
            {0: ["b"]},
            id="stronger evidence",
        ),
        pytest.param(
            [claim("a", uuid_of(0)), claim("b", uuid_of(1), evidence=Evidence.RUNTIME_NODES)],
            {0: ["a"], 1: ["b"]},
            id="stronger evidence on another device",
        ),
        pytest.param([claim("a", "GPU-none"), claim("b", uuid_of(1))], {1: ["b"]}, id="unknown id"),
        pytest.param([claim("a", "7", scheme="minor")], {}, id="unknown minor number"),
        pytest.param([], {}, id="no claims"),
    ],
)
def test_claims_become_holders(reported: list[Claim], expected: dict[int, list[str]]) -> None:
    node = Node()
    node.has(*GPUS)
    node.podlist(*reported)
    assert holders(node) == {uuid_of(index): pods for index, pods in expected.items()}


def test_a_mig_instance_and_its_gpu_have_separate_holders() -> None:
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
    def test_claims_of_a_silent_source_expire_after_their_max_age(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.say(claims(claim("a", uuid_of(0)), good_for=300), "podlist", "podlist")
        node.seconds = 300
        node.say(ClockTicked(), "", "clock")
        assert holders(node) == {uuid_of(0): ["a"]}
        node.seconds = 301
        node.say(ClockTicked(), "", "clock")
        assert holders(node) == {}

    def test_the_same_report_again_confirms_the_claims_and_changes_nothing(self) -> None:
        node = Node()
        node.has(*GPUS)
        report = claims(claim("a", uuid_of(0)), good_for=300)
        node.say(report, "podlist", "podlist")
        before = node.snapshot()
        node.seconds = 200
        assert node.say(report, "podlist", "podlist") is False
        node.seconds = 400
        node.say(ClockTicked(), "", "clock")
        after = node.snapshot()
        assert after.layout is before.layout
        state = after.sources["podlist"]
        assert state.confirmed_at is not None
        assert state.confirmed_at.mono_ns == before.at.mono_ns + 200 * NS

    def test_claims_of_a_lost_source_stay_valid_until_they_expire(self) -> None:
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

    def test_claims_of_a_removed_source_are_removed(self) -> None:
        node = Node()
        node.has(*GPUS)
        node.podlist(claim("a", uuid_of(0)))
        node.say(SourceRemoved(), "podlist", "podlist")
        assert holders(node) == {}
        assert "podlist" not in node.snapshot().sources

    def test_the_start_of_a_holding_is_its_first_report_and_survives_other_changes(self) -> None:
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


def test_hints_name_only_the_devices_whose_holders_changed() -> None:
    node = Node()
    node.has(*GPUS)
    node.podlist(claim("a", uuid_of(0)), claim("b", uuid_of(1)))
    outcome = node.join.apply(
        envelope_of(node, claims(claim("a", uuid_of(0)), claim("c", uuid_of(1))))
    )
    assert [sorted(hint.devices) for hint in outcome.hints] == [[uuid_of(1)]]


def test_new_labels_of_a_pod_cause_no_hint() -> None:
    node = Cluster()
    node.pods(pod("a"))
    node.kubelet(kubelet_claim("a", uuid_of(0)))
    before = node.attribution(uuid_of(0))
    labelled = replace(pod("a"), info=replace(pod("a").info, labels=(("team", "x"),)))
    envelope = Envelope("pods", "pods", 99, at(0), PodUpserted(labelled))
    outcome = node.join.apply(envelope)
    assert (outcome.changed, outcome.hints) == (True, ())
    assert node.attribution(uuid_of(0)) != before


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
    same_series = [old is new for old, new in zip(before.series, after.series, strict=True)]
    assert same_series == [True, False, True, True]


def test_devices_are_ordered_by_index_then_gi_then_ci() -> None:
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
    """A relayed source depends on the source that relays it."""

    @staticmethod
    def relaying_node() -> Node:
        node = Node()
        node.say(SourceAdded(0), "replay", "replay")
        node.say(DevicesDiscovered(tuple(GPUS)), "gpus", "nvml", via="replay")
        node.say(claims(claim("a", uuid_of(0))), "podlist", "podlist", via="replay")
        return node

    def test_the_relaying_source_has_reported(self) -> None:
        state = self.relaying_node().snapshot().sources["replay"]
        assert (state.up, state.has_reported, state.events) == (True, True, 2)

    def test_the_relaying_source_is_known_of_each_relayed_source(self) -> None:
        sources = self.relaying_node().snapshot().sources
        relays = {name: state.relayed_by for name, state in sources.items()}
        assert relays == {"replay": "", "gpus": "replay", "podlist": "replay"}

    def test_relayed_sources_are_lost_with_the_relaying_source(self) -> None:
        node = self.relaying_node()
        node.say(SourceLost("finished"), "replay", "replay")
        sources = node.snapshot().sources
        assert {name: (s.up, s.reason) for name, s in sources.items()} == dict.fromkeys(
            ("replay", "gpus", "podlist"), (False, "finished")
        )

    def test_relayed_sources_are_removed_with_the_relaying_source(self) -> None:
        node = self.relaying_node()
        node.say(SourceRemoved(), "replay", "replay")
        snapshot = node.snapshot()
        assert (snapshot.sources, snapshot.layout.attributions) == ({}, {})


class TestStartOfAHolding:
    """Whether the start of a holding was reported, or is the time at which it was first seen."""

    @pytest.mark.parametrize(
        ("claimed", "started", "since", "observed"),
        [
            # A claim without a time and an unknown pod: the time at which the claim was received.
            (None, None, 5, True),
            # The time of the claim, otherwise the start of the pod, however long ago.
            (None, -300, -300, False),
            (3, None, 3, False),
            (3, -300, 3, False),
            # A reported time counts as reported, even if it is the time of receipt.
            (5, None, 5, False),
        ],
    )
    def test_the_start_is_observed_unless_the_claim_or_the_pod_has_one(
        self, claimed: float | None, started: float | None, since: float, observed: bool
    ) -> None:
        node = Cluster()
        node.seconds = 5
        if started is not None:
            node.pods(pod("a", started=started))
        node.kubelet(
            replace(kubelet_claim("a", uuid_of(0)), since=None if claimed is None else at(claimed))
        )
        [holder] = node.attribution(uuid_of(0)).holders
        assert (holder.since.wall_ns, holder.since_observed) == (at(since).wall_ns, observed)

    def test_a_start_that_is_reported_later_stays_known_until_the_device_is_released(self) -> None:
        node, without_time = Cluster(), kubelet_claim("a", uuid_of(0))
        found: list[tuple[float, bool]] = []
        for seconds, held in (
            (10, [without_time]),
            (20, [replace(without_time, since=at(7))]),
            (30, [without_time]),
            (40, []),
            (50, [without_time]),
        ):
            node.seconds = seconds
            node.kubelet(*held)
            found += [
                (h.since.mono_ns / NS - 1000, h.since_observed)
                for h in node.attribution(uuid_of(0)).holders
            ]
        assert found == [(10, True), (7, False), (7, False), (50, True)]
