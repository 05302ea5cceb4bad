"""From the inbox to the outlets: what is published when."""

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
from tests.pipeline.usage.looking import use
from tests.support.nodes import START, at, claim, claims, gpu, mig, reading, uuid_of

GPUS = (gpu(0), gpu(1))


async def published(*events: tuple[str, Event]) -> list[Snapshot]:
    """Let a publisher work off events that all wait in its inbox; return what it published."""
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


SAMPLE = SamplesTaken(tuple(reading(device, "power_watts", 1) for device in GPUS))


async def test_dimensions_that_wait_together_make_one_snapshot() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", claims(claim("a", uuid_of(0)))),
        ("podlist", claims(claim("b", uuid_of(0)))),
    )
    assert [pods(snapshot) for snapshot in snapshots] == [["b"]]


async def test_a_sample_is_a_barrier_on_both_sides() -> None:
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


def look(second: float, since: float | None) -> ProcessesSampled:
    return ProcessesSampled(tuple(use(device, second, since) for device in GPUS))


async def test_each_look_at_who_uses_the_devices_makes_a_snapshot_with_nothing_fresh() -> None:
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("gpus", look(0, None)),
        ("gpus", SAMPLE),
        ("podlist", claims(claim("a", uuid_of(0)))),
        ("gpus", look(5, 0)),
        ("gpus", look(10, 5)),
        ("podlist", claims(claim("b", uuid_of(0)))),
    )
    given_out = [s.usage.devices[uuid_of(0)] if s.usage else None for s in snapshots]
    assert [(pods(s), len(s.fresh)) for s in snapshots] == [
        ([], 0),
        ([], 2),
        (["a"], 0),
        (["a"], 0),
        (["b"], 0),
    ]
    assert [account and account.elapsed_ns // NS for account in given_out] == [0, 0, 5, 10, 10]


async def test_what_changes_nothing_publishes_nothing() -> None:
    said = claims(claim("a", uuid_of(0)))
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("podlist", said),
        ("gpus", SAMPLE),
        ("podlist", said),
        ("gpus", DevicesDiscovered(GPUS)),
        ("", ClockTicked()),
    )
    assert len(snapshots) == 2


async def test_a_change_of_holders_alone_is_published_with_nothing_fresh() -> None:
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


def given(evidence: Evidence, *, share: float | None = None) -> Event:
    return claims(claim("victim", uuid_of(0), evidence=evidence, share=share))


@pytest.mark.parametrize(
    ("said", "closed", "alone"),
    [
        pytest.param([], False, set(), id="nobody's"),
        pytest.param([OFFERED], True, set(), id="a device plugin's"),
        pytest.param([given(Evidence.KUBELET_IDS)], True, {"ml/victim"}, id="given out"),
        pytest.param([given(Evidence.RUNTIME_NODES)], False, {"ml/victim"}, id="in a container"),
        pytest.param(
            [given(Evidence.RUNTIME_NODES, share=0.5)], False, set(), id="a part, in a container"
        ),
        pytest.param([given(Evidence.SCHEDULER_ANNOTATION)], False, set(), id="annotated"),
        pytest.param(
            [claims(claim("victim", SLICE.uuid, evidence=Evidence.KUBELET_IDS))],
            True,
            {"ml/victim"},
            id="an instance of it is given out",
        ),
    ],
)
async def test_t03_injection_is_reported_which_gpus_are_a_scheduler_s(
    said: list[Event], closed: bool, alone: set[str]
) -> None:
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    events = [("gpus", DevicesDiscovered((*GPUS, SLICE))), *(("kubelet", event) for event in said)]
    for seq, (source, event) in enumerate([*events, ("gpus", SAMPLE)], 1):
        await inbox.put(Envelope(source, source, seq, START, event))
    # What the kubelet offers is no list of what it gave out.
    untold = bool(said) and isinstance(said[-1], ResourcesAdvertised)
    if untold:
        await inbox.put(Envelope("kubelet", "kubelet", 9, START, claims()))
    inbox.close()
    await publisher.run()
    assert publisher.accepted.gpus == {
        0: Gpu(uuid_of(0), closed, frozenset(alone)),
        1: Gpu(uuid_of(1), False, frozenset()),
    }


async def test_t03_no_gpu_is_known_to_be_a_scheduler_s_before_all_sources_have_reported() -> None:
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    for event in (SourceAdded(1), OFFERED):
        await inbox.put(Envelope("kubelet", "podresources", 1, START, event))
    await inbox.put(Envelope("gpus", "nvml", 1, START, DevicesDiscovered(GPUS)))
    inbox.close()
    await publisher.run()
    assert publisher.accepted.gpus is None


async def test_hints_merge_until_they_are_taken() -> None:
    board = HintBoard()
    hints = board.subscribe()
    first = asyncio.ensure_future(anext(hints))
    await asyncio.sleep(0)
    board.post(Hint(frozenset({"a"})))
    board.post(Hint(frozenset({"b"})))
    assert await first == Hint(frozenset({"a", "b"}))
    board.post(Hint(frozenset({"c"})))
    assert await anext(hints) == Hint(frozenset({"c"}))


async def test_no_one_listening_to_hints_costs_nothing() -> None:
    HintBoard().post(Hint(frozenset({"a"})))


class TestUnresolvedIds:
    """Each is told once, and never many at a time."""

    @staticmethod
    def strangers(*numbers: int) -> ClaimsReplaced:
        return claims(*(claim(f"p-{n}", f"GPU-{n:06}") for n in numbers))

    @staticmethod
    async def given_out(caplog: pytest.LogCaptureFixture, *said: tuple[str, Event]) -> list[str]:
        """What is told of these, with a snapshot after each."""
        caplog.clear()
        events: list[tuple[str, Event]] = [("gpus", DevicesDiscovered(GPUS))]
        for one in said:
            events += [one, ("gpus", SAMPLE)]
        await published(*events)
        return caplog.messages

    async def test_each_once(self, caplog: pytest.LogCaptureFixture) -> None:
        messages = await self.given_out(
            caplog,
            ("pods", self.strangers(1)),
            ("pods", self.strangers(1, 2)),
            ("pods", self.strangers()),
            ("pods", self.strangers(1, 2)),
            ("other", self.strangers(1)),
        )
        assert messages == [
            f"source {source} reports device id uuid 'GPU-{n:06}', "
            "which matches no device of this node"
            for source, n in [("pods", 1), ("pods", 2), ("other", 1)]
        ]

    @pytest.mark.parametrize("count", [10, 11, 999, 1000, 1001, 5000])
    async def test_ten_by_name_and_the_others_by_number(
        self, caplog: pytest.LogCaptureFixture, count: int
    ) -> None:
        messages = await self.given_out(caplog, ("pods", self.strangers(*range(count))))
        more = [
            f"source pods reports {count - 10} more device ids that match no device of this node"
        ]
        assert len(messages) == 10 + (count > 10)
        assert messages[10:] == (more if count > 10 else [])

    async def test_ever_new_ones_are_reported_of_up_to_a_limit(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        said = [("pods", self.strangers(*range(n, n + 900))) for n in range(0, 18_000, 900)]
        messages = await self.given_out(caplog, *said)
        assert len(messages) == 12 * 11 + 1
        assert messages[-1].startswith("further unmatched device ids are not logged")

    async def test_a_snapshot_without_news_looks_at_no_id(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[int] = []
        whole = Publisher._log_unresolved

        def tell(publisher: Publisher, source: str, ids: tuple[RawDeviceId, ...], new: int) -> None:
            looked.append(len(ids))
            whole(publisher, source, ids, new)

        monkeypatch.setattr(Publisher, "_log_unresolved", tell)
        said = self.strangers(*range(5))
        await self.given_out(caplog, *[("pods", said)] * 20)
        assert looked == [5]


def odd(*levels: Level) -> TopologyRead:
    """Three GPUs whose pairs 0-1, 0-2 and 1-2 are so close."""
    cards = tuple(TopologyCard(uuid_of(at), at, "", None, (), None) for at in range(3))
    places = ((0, 1), (0, 2), (1, 2))
    return TopologyRead(
        cards,
        tuple(
            TopologyPair(uuid_of(a), uuid_of(b), level, None, None)
            for (a, b), level in zip(places, levels, strict=True)
        ),
    )


async def test_answers_that_contradict_each_other_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contradictory = odd(Level.SINGLE, Level.SINGLE, Level.SYSTEM)
    snapshots = await published(
        ("gpus", contradictory),
        ("gpus", SAMPLE),
        ("gpus", odd(Level.SINGLE, Level.SINGLE, Level.SINGLE)),
        ("gpus", SAMPLE),
        ("gpus", contradictory),
        ("gpus", SAMPLE),
        ("gpus", odd(Level.SINGLE, Level.SYSTEM, Level.SINGLE)),
    )
    counts = [len(s.topology.contradictions) for s in snapshots if s.topology is not None]
    assert counts[-1] == 1
    assert 0 in counts
    given_out = [record.getMessage() for record in caplog.records]
    assert len(given_out) == 2
    assert given_out[0].startswith(
        "contradictory topology levels: the driver reports GPU1 and GPU2 "
    )
    assert given_out[1].startswith(
        "contradictory topology levels: the driver reports GPU0 and GPU2 "
    )


async def test_of_many_contradictions_some_are_named_and_the_others_counted(
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
    given_out = [record.getMessage() for record in caplog.records]
    assert len(given_out) == 11
    assert given_out[-1].startswith("11 more pairs of GPUs have contradictory topology levels")


async def test_xid_errors_are_published_at_once_and_none_is_missed() -> None:
    given_out = [XidsReported((XidReport(uuid_of(0), "", code, START),)) for code in range(3)]
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)),
        ("gpus", given_out[0]),
        ("gpus", SAMPLE),
        ("gpus", XidsReported(())),
        ("gpus", given_out[1]),
        ("kernel", given_out[2]),
    )
    codes = [[error.code for error in snapshot.xids] for snapshot in snapshots]
    assert codes == [[0], [0], [0, 1, 2]]


async def test_a_holding_that_has_ended_is_published_when_time_continues() -> None:
    inbox: Channel[Envelope] = Channel(100)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    outlet: Channel[Snapshot] = Channel(100)
    publisher.outlets["all"] = outlet
    story: list[tuple[float, str, Event]] = [
        (0, "gpus", DevicesDiscovered(GPUS)),
        (0, "podlist", claims(claim("a", uuid_of(0)))),
        (0, "gpus", look(0, None)),
        (3, "podlist", claims()),
        (3, "gpus", SAMPLE),
        (19, "", ClockTicked()),
    ]
    for seq, (second, source, event) in enumerate(story, 1):
        await inbox.put(Envelope(source, source, seq, at(second), event))
    inbox.close()
    await publisher.run()
    outlet.close()
    ended = [s.usage.ended if s.usage else () for s in [s async for s in outlet]]
    assert [[one.gap_ns for one in each] for each in ended[-2:]] == [[], [3 * NS]]


async def test_xid_errors_on_devices_that_no_one_knows_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strange = XidsReported((XidReport("", "0009:01:00", 79, START),))
    snapshots = await published(
        ("gpus", DevicesDiscovered(GPUS)), ("kernel", strange), ("kernel", strange)
    )
    assert len(snapshots) == 1
    [record] = [r for r in caplog.records if "XID" in r.getMessage()]
    assert "source kernel reports an XID error on '0009:01:00'" in record.getMessage()
