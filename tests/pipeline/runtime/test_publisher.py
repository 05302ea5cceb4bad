"""Tests of which snapshots the publisher makes from the events in its inbox."""

import asyncio
import logging

import pytest

from pipeline.base.channels import Channel
from pipeline.base.hint_board import HintBoard
from pipeline.component.accepted_annotations import Gpu
from pipeline.model import (
    NS,
    AdvertisedResource,
    ClaimsReplaced,
    ClockTicked,
    DevicesDiscovered,
    Envelope,
    Event,
    Evidence,
    Hint,
    Level,
    ProcessesSampled,
    RawDeviceId,
    ResourcesAdvertised,
    SamplesTaken,
    Snapshot,
    SourceAdded,
    TopologyCard,
    TopologyPair,
    TopologyRead,
    XidReport,
    XidsReported,
)
from pipeline.runtime.publisher import Publisher
from tests.pipeline.usage.samples import use
from tests.support.nodes import START, at, claim, claims, dra_claim, gpu, mig, reading, uuid_of

GPUS = (gpu(0), gpu(1))


async def published(*events: tuple[str, Event]) -> list[Snapshot]:
    """Return the snapshots that a publisher makes of events that all wait in its inbox."""
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    outlet: Channel[Snapshot] = Channel(100)
    publisher.outlets["all"] = outlet
    for seq, (source, event) in enumerate(events, 1):
        await inbox.put(Envelope(source, source, seq, START, event))
    inbox.close()
    await publisher.run()
    outlet.close()
    return [snapshot async for snapshot in outlet]


def pods(snapshot: Snapshot) -> list[str]:
    found = snapshot.layout.attributions.values()
    return [holder.subject.pod for known in found for holder in known.holders]


CONTRADICTION = (
    "the topology levels of the driver contradict each other; podgpu uses the second one"
)
SAMPLE = SamplesTaken(tuple(reading(device, "power_watts", 1) for device in GPUS))


async def test_changes_that_wait_together_make_one_snapshot() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", claims(claim("a", uuid_of(0)))),
        ("podlist", claims(claim("b", uuid_of(0)))),
    )
    assert [pods(snapshot) for snapshot in snapshots] == [["b"]]


async def test_changes_before_and_after_readings_are_published_separately() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", claims(claim("a", uuid_of(0)))),
        ("gpus", SAMPLE),
        ("podlist", claims(claim("b", uuid_of(0)))),
        ("gpus", SAMPLE),
    )
    assert [(pods(s), len(s.fresh)) for s in snapshots] == [
        (["a"], 0),
        (["a"], 2),
        (["b"], 0),
        (["b"], 2),
    ]


def usage_sample(second: float, since: float | None) -> ProcessesSampled:
    return ProcessesSampled(tuple(use(device, second, since) for device in GPUS))


async def test_each_usage_sample_makes_a_snapshot_without_fresh_readings() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("gpus", usage_sample(0, None)),
        ("gpus", SAMPLE),
        ("podlist", claims(claim("a", uuid_of(0)))),
        ("gpus", usage_sample(5, 0)),
        ("gpus", usage_sample(10, 5)),
        ("podlist", claims(claim("b", uuid_of(0)))),
    )
    accounts = [s.usage.devices[uuid_of(0)] if s.usage else None for s in snapshots]
    assert [(pods(s), len(s.fresh)) for s in snapshots] == [
        ([], 0),
        ([], 2),
        (["a"], 0),
        (["a"], 0),
        (["b"], 0),
    ]
    assert [account and account.elapsed_ns // NS for account in accounts] == [0, 0, 5, 10, 10]


async def test_an_event_that_changes_nothing_publishes_nothing() -> None:
    same = claims(claim("a", uuid_of(0)))
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", same),
        ("gpus", SAMPLE),
        ("podlist", same),
        ("gpus", DevicesDiscovered(GPUS)),
        ("", ClockTicked()),
    )
    assert len(snapshots) == 2


async def test_a_change_of_holders_is_published_without_fresh_readings() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("gpus", SAMPLE),
        ("podlist", claims(claim("a", uuid_of(0)))),
    )
    assert snapshots[-1].fresh == ()
    assert len(snapshots[-1].readings) == 2


SLICE = mig(GPUS[0], 1)
OFFERED = ResourcesAdvertised(
    (AdvertisedResource("nvidia.com/gpu", (RawDeviceId("plugin", uuid_of(0)),)),), 300 * NS
)


def one_claim(evidence: Evidence, *, share: float | None = None) -> Event:
    return claims(claim("victim", uuid_of(0), evidence=evidence, share=share))


@pytest.mark.parametrize(
    ("reported", "plugin_managed", "exclusive_pods"),
    [
        pytest.param([], False, set(), id="nothing reported"),
        pytest.param([OFFERED], True, set(), id="a device plugin offers it"),
        pytest.param(
            [one_claim(Evidence.KUBELET_IDS)], True, {"ml/victim"}, id="the kubelet allocated it"
        ),
        pytest.param(
            [one_claim(Evidence.RUNTIME_NODES)], False, {"ml/victim"}, id="in a container"
        ),
        pytest.param(
            [one_claim(Evidence.RUNTIME_NODES, share=0.5)],
            False,
            set(),
            id="a share of it in a container",
        ),
        pytest.param([one_claim(Evidence.SCHEDULER_ANNOTATION)], False, set(), id="annotated"),
        pytest.param(
            [claims(claim("victim", SLICE.uuid, evidence=Evidence.KUBELET_IDS))],
            True,
            {"ml/victim"},
            id="the kubelet allocated a MIG instance of it",
        ),
    ],
)
async def test_t03_pod_injection_gets_the_gpus_that_a_scheduler_may_not_allocate(
    reported: list[Event], plugin_managed: bool, exclusive_pods: set[str]
) -> None:
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    events = [
        ("gpus", DevicesDiscovered((*GPUS, SLICE))),
        *(("kubelet", event) for event in reported),
    ]
    for seq, (source, event) in enumerate([*events, ("gpus", SAMPLE)], 1):
        await inbox.put(Envelope(source, source, seq, START, event))
    # The offered resources do not say what the kubelet allocated: that takes a report of claims.
    without_claims = bool(reported) and isinstance(reported[-1], ResourcesAdvertised)
    if without_claims:
        await inbox.put(Envelope("kubelet", "kubelet", 9, START, claims()))
    inbox.close()
    await publisher.run()
    assert publisher.accepted.gpus == {
        0: Gpu(uuid_of(0), plugin_managed, frozenset(exclusive_pods)),
        1: Gpu(uuid_of(1), False, frozenset()),
    }


async def test_t03_the_accepted_gpus_are_unknown_before_all_sources_have_reported() -> None:
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    for event in (SourceAdded(1), OFFERED):
        await inbox.put(Envelope("kubelet", "podresources", 1, START, event))
    await inbox.put(Envelope("gpus", "nvml", 1, START, DevicesDiscovered(GPUS)))
    inbox.close()
    await publisher.run()
    assert publisher.accepted.gpus is None


async def test_hints_are_merged_until_they_are_taken() -> None:
    board = HintBoard()
    hints = board.subscribe()
    first = asyncio.ensure_future(anext(hints))
    await asyncio.sleep(0)
    board.post(Hint(frozenset({"a"})))
    board.post(Hint(frozenset({"b"})))
    assert await first == Hint(frozenset({"a", "b"}))
    board.post(Hint(frozenset({"c"})))
    assert await anext(hints) == Hint(frozenset({"c"}))


async def test_a_hint_without_subscribers_is_no_error() -> None:
    HintBoard().post(Hint(frozenset({"a"})))


class TestUnresolvedIds:
    """Each unresolved id is logged once, and many ids are summarized."""

    @staticmethod
    def claims_on_unknown_gpus(*numbers: int) -> ClaimsReplaced:
        return claims(*(claim(f"p-{n}", f"GPU-{n:06}") for n in numbers))

    @staticmethod
    async def logged(caplog: pytest.LogCaptureFixture, *reports: tuple[str, Event]) -> list[str]:
        """Return the messages that these events cause, with a snapshot after each event."""
        caplog.clear()
        events: list[tuple[str, Event]] = [("gpus", DevicesDiscovered(GPUS))]
        for one in reports:
            events += [one, ("gpus", SAMPLE)]
        await published(*events)
        return caplog.messages

    async def test_each_id_of_a_source_is_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        messages = await self.logged(
            caplog,
            ("pods", self.claims_on_unknown_gpus(1)),
            ("pods", self.claims_on_unknown_gpus(1, 2)),
            ("pods", self.claims_on_unknown_gpus()),
            ("pods", self.claims_on_unknown_gpus(1, 2)),
            ("other", self.claims_on_unknown_gpus(1)),
        )
        assert messages == [
            f"source {source} reports device id 'GPU-{n:06}' (kind of id: uuid), "
            "which matches no device of this node"
            for source, n in [("pods", 1), ("pods", 2), ("other", 1)]
        ]

    async def test_a_name_of_a_dra_driver_needs_resource_slices(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        (message,) = await self.logged(caplog, ("kubelet", claims(dra_claim("a", "c", "gpu-0"))))
        assert "(kind of id: dra), which matches no device of this node; " in message
        assert message.endswith("resource_slices (podgpu dcgm-exporter: --kubernetes-enable-dra)")

    @pytest.mark.parametrize("count", [10, 11, 999, 1000, 1001])
    async def test_ten_ids_are_named_and_the_others_counted(
        self, caplog: pytest.LogCaptureFixture, count: int
    ) -> None:
        messages = await self.logged(caplog, ("pods", self.claims_on_unknown_gpus(*range(count))))
        more = [
            f"source pods reports {count - 10} more device ids that match no device of this node"
        ]
        assert len(messages) == 10 + (count > 10)
        assert messages[10:] == (more if count > 10 else [])

    @pytest.mark.slow
    async def test_new_ids_are_logged_up_to_a_limit(self, caplog: pytest.LogCaptureFixture) -> None:
        reports = [
            ("pods", self.claims_on_unknown_gpus(*range(n, n + 900))) for n in range(0, 13_500, 900)
        ]
        messages = await self.logged(caplog, *reports)
        assert len(messages) == 12 * 11 + 1
        assert messages[-1].startswith("further unresolved device ids are not logged")

    async def test_unchanged_claims_are_not_searched_for_unresolved_ids_again(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        searched: list[int] = []
        original = Publisher._log_unresolved

        def search(
            publisher: Publisher, source: str, ids: tuple[RawDeviceId, ...], new: int
        ) -> None:
            searched.append(len(ids))
            original(publisher, source, ids, new)

        monkeypatch.setattr(Publisher, "_log_unresolved", search)
        unchanged = self.claims_on_unknown_gpus(*range(5))
        await self.logged(caplog, *[("pods", unchanged)] * 20)
        assert searched == [5]


def topology(*levels: Level) -> TopologyRead:
    """Return three GPUs, with the levels of the pairs 0-1, 0-2 and 1-2."""
    cards = tuple(TopologyCard(uuid_of(at), at, "", None, (), None) for at in range(3))
    places = ((0, 1), (0, 2), (1, 2))
    return TopologyRead(
        cards,
        tuple(
            TopologyPair(uuid_of(a), uuid_of(b), level, None, None)
            for (a, b), level in zip(places, levels, strict=True)
        ),
    )


async def test_contradictory_topology_levels_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contradictory = topology(Level.SINGLE, Level.SINGLE, Level.SYSTEM)
    snapshots = await published(
        ("gpus", contradictory),
        ("gpus", SAMPLE),
        ("gpus", topology(Level.SINGLE, Level.SINGLE, Level.SINGLE)),
        ("gpus", SAMPLE),
        ("gpus", contradictory),
        ("gpus", SAMPLE),
        ("gpus", topology(Level.SINGLE, Level.SYSTEM, Level.SINGLE)),
    )
    counts = [len(s.topology.contradictions) for s in snapshots if s.topology is not None]
    assert counts[-1] == 1
    assert 0 in counts
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith(f"{CONTRADICTION}: the driver reports GPU1 and GPU2 ")
    assert messages[1].startswith(f"{CONTRADICTION}: the driver reports GPU0 and GPU2 ")


async def test_ten_contradictory_pairs_are_named_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cards = tuple(TopologyCard(uuid_of(at), at, "", None, (), None) for at in range(8))
    near = [TopologyPair(uuid_of(0), uuid_of(at), Level.SINGLE, None, None) for at in range(1, 8)]
    far = [
        TopologyPair(uuid_of(a), uuid_of(b), Level.SYSTEM, None, None)
        for b in range(8)
        for a in range(1, b)
    ]
    await published(("gpus", TopologyRead(cards, (*near, *far))))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 11
    assert messages[-1].startswith("11 more pairs of GPUs have contradictory topology levels")


async def test_xid_errors_are_published_immediately_and_none_is_missed() -> None:
    errors = [XidsReported((XidReport(uuid_of(0), "", code, START),)) for code in range(3)]
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("gpus", errors[0]),
        ("gpus", SAMPLE),
        ("gpus", XidsReported(())),
        ("gpus", errors[1]),
        ("kernel", errors[2]),
    )
    codes = [[error.code for error in snapshot.xids] for snapshot in snapshots]
    assert codes == [[0], [0], [0, 1, 2]]


async def test_a_holding_that_ended_is_published_after_a_clock_tick() -> None:
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    outlet: Channel[Snapshot] = Channel(100)
    publisher.outlets["all"] = outlet
    events: list[tuple[float, str, Event]] = [
        (0, "gpus", DevicesDiscovered(GPUS)),
        (0, "podlist", claims(claim("a", uuid_of(0)))),
        (0, "gpus", usage_sample(0, None)),
        (3, "podlist", claims()),
        (3, "gpus", SAMPLE),
        (19, "", ClockTicked()),
    ]
    for seq, (second, source, event) in enumerate(events, 1):
        await inbox.put(Envelope(source, source, seq, at(second), event))
    inbox.close()
    await publisher.run()
    outlet.close()
    ended = [s.usage.ended if s.usage else () for s in [s async for s in outlet]]
    assert [[one.gap_ns for one in each] for each in ended[-2:]] == [[], [3 * NS]]


async def test_xid_errors_on_unknown_devices_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = XidsReported((XidReport("", "0009:01:00", 79, START),))
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)), ("kernel", unknown), ("kernel", unknown)
    )
    assert len(snapshots) == 1
    [record] = [r for r in caplog.records if "XID" in r.getMessage()]
    assert "source kernel reports an XID error on '0009:01:00'" in record.getMessage()
