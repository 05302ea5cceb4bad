"""MIG instances that one source knows by UUID and another only by their placement."""

from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.join.mig_placement import MigPlacements
from pipeline.model import (
    ClockTicked,
    Device,
    DevicesDiscovered,
    Event,
    GpuProcess,
    MigPlace,
    ProcessList,
    Reading,
    SamplesTaken,
    SourceAdded,
    SourceLost,
    SourceRemoved,
)
from tests.support.nodes import START, Node, claim, claims, gpu, mig, reading

GPU, OTHER = gpu(0), gpu(1)
ONE = mig(GPU, 7)
HALVES = (mig(GPU, 2, 0), mig(GPU, 2, 1))


def placed(parent: Device, gi: int, ci: int | None = None, profile: str = "") -> Device:
    """Return a MIG instance that is named by its placement."""
    place = MigPlace(parent.uuid, gi, ci, profile)
    return Device(place.name, parent.index, mig=place)


@pytest.mark.parametrize(
    ("known", "name", "found"),
    [
        pytest.param([ONE], f"MIG-{GPU.uuid}/7", ONE.uuid, id="its only compute instance"),
        pytest.param([ONE], f"MIG-{GPU.uuid}/7/0", ONE.uuid, id="GI and CI"),
        pytest.param([ONE], f"mig-{GPU.uuid}/7/0".lower(), ONE.uuid, id="lower case"),
        pytest.param([ONE], f"MIG-{GPU.uuid}/7/1", None, id="another compute instance"),
        pytest.param([ONE], f"MIG-{GPU.uuid}/8", None, id="another GPU instance"),
        pytest.param([ONE], f"MIG-{OTHER.uuid}/7/0", None, id="another GPU"),
        pytest.param(HALVES, f"MIG-{GPU.uuid}/2", None, id="several compute instances"),
        pytest.param(HALVES, f"MIG-{GPU.uuid}/2/1", HALVES[1].uuid, id="one of several"),
        pytest.param([placed(GPU, 7, 0)], f"MIG-{GPU.uuid}/7", f"MIG-{GPU.uuid}/7/0", id="place"),
        pytest.param([placed(GPU, 7)], f"MIG-{GPU.uuid}/7/0", None, id="CI unknown"),
        pytest.param(
            [ONE, placed(GPU, 7, 0), placed(GPU, 7)], f"MIG-{GPU.uuid}/7", ONE.uuid, id="all three"
        ),
        pytest.param(
            [ONE, replace(ONE, uuid="MIG-new")], f"MIG-{GPU.uuid}/7/0", None, id="contradiction"
        ),
        pytest.param([ONE, GPU], GPU.uuid, None, id="a GPU"),
        pytest.param([ONE], ONE.uuid, None, id="a UUID"),
        pytest.param([ONE], "gpu.nvidia.com/7/0", None, id="another name"),
    ],
)
def test_a_name_of_a_placement_means_an_instance(
    known: list[Device], name: str, found: str | None
) -> None:
    assert MigPlacements(known).canonical_uuid(name) == (found or name)


def shown(node: Node) -> dict[str, Any]:
    snapshot = node.snapshot()
    return {
        "devices": [known.device for known in snapshot.layout.attributions.values()],
        "series": [
            (series.field, series.attrs, series.attribution.device.uuid)
            for series in snapshot.layout.series
        ],
        "readings": snapshot.readings,
        "holders": {
            uuid: [holder.subject.pod for holder in known.holders]
            for uuid, known in snapshot.layout.attributions.items()
        },
        "processes": snapshot.processes,
    }


def node_after(
    *events: tuple[str, Event], sources: tuple[str, ...] = ("nvml", "dcgm", "pods")
) -> Node:
    node = Node()
    for order, source in enumerate(sources):
        node.say(SourceAdded(order), source, source)
    for source, event in events:
        node.say(event, source, source)
    return node


def active(device: str, value: float) -> Reading:
    return reading(device, "graphics_engine_active_ratio", value)


PLACE = placed(GPU, 7, profile="1g.10gb")
EVENTS: list[tuple[str, Event]] = [
    ("nvml", DevicesDiscovered((GPU, ONE))),
    ("dcgm", DevicesDiscovered((Device(GPU.uuid, 0), PLACE))),
    ("dcgm", SamplesTaken((active(PLACE.uuid, 0.5), active(GPU.uuid, 0.25)))),
    ("nvml", SamplesTaken((reading(ONE, "memory_used_bytes", 5),))),
    ("pods", claims(claim("train", ONE.uuid))),
]


@pytest.mark.slow
def test_the_order_of_events_does_not_matter() -> None:
    expected = shown(node_after(*EVENTS))
    assert [device.uuid for device in expected["devices"]] == [GPU.uuid, ONE.uuid]
    assert expected["series"] == [
        ("memory_used_bytes", (), ONE.uuid),
        ("graphics_engine_active_ratio", (), GPU.uuid),
        ("graphics_engine_active_ratio", (), ONE.uuid),
    ]
    assert [found.device for found in expected["readings"]] == [ONE.uuid, GPU.uuid, ONE.uuid]
    assert expected["holders"] == {GPU.uuid: [], ONE.uuid: ["train"]}
    for order in permutations(EVENTS):
        assert shown(node_after(*order)) == expected


def test_snapshots_between_events_change_nothing() -> None:
    node = node_after()
    for source, event in EVENTS:
        node.say(event, source, source)
        node.snapshot()
    assert shown(node) == shown(node_after(*EVENTS))


def test_a_placement_without_uuid_is_a_separate_device() -> None:
    node = node_after(*(entry for entry in EVENTS if entry[0] == "dcgm"))
    assert list(shown(node)["holders"]) == [GPU.uuid, PLACE.uuid]
    assert ("graphics_engine_active_ratio", (), PLACE.uuid) in shown(node)["series"]


@pytest.mark.parametrize("name", [f"MIG-{GPU.uuid}/7/0", f"MIG-{GPU.uuid}/7"])
def test_a_claim_finds_an_instance_known_by_its_placement(name: str) -> None:
    node = node_after(
        ("dcgm", DevicesDiscovered((GPU, PLACE))), ("pods", claims(claim("train", name)))
    )
    assert shown(node)["holders"][PLACE.uuid] == ["train"]


def test_an_instance_is_gone_when_both_sources_lack_it() -> None:
    node = node_after(*EVENTS)
    node.say(DevicesDiscovered((GPU,)), "nvml", "nvml")
    assert [device.uuid for device in shown(node)["devices"]] == [GPU.uuid, PLACE.uuid]
    node.say(DevicesDiscovered((GPU,)), "dcgm", "dcgm")
    assert [device.uuid for device in shown(node)["devices"]] == [GPU.uuid]
    assert shown(node)["series"] == [("graphics_engine_active_ratio", (), GPU.uuid)]


def test_readings_of_a_divided_gpu_instance_are_shown_for_the_whole_instance() -> None:
    whole = placed(GPU, 2)
    node = node_after(
        ("nvml", DevicesDiscovered((GPU, *HALVES))),
        ("dcgm", DevicesDiscovered((GPU, whole))),
        ("dcgm", SamplesTaken((active(whole.uuid, 0.5),))),
        ("pods", claims(claim("a", HALVES[0].uuid), claim("b", f"MIG-{GPU.uuid}/2/1"))),
    )
    assert shown(node)["series"] == [("graphics_engine_active_ratio", (), whole.uuid)]
    assert shown(node)["holders"] == {
        GPU.uuid: [],
        whole.uuid: [],
        HALVES[0].uuid: ["a"],
        HALVES[1].uuid: ["b"],
    }


class TestPriorityOfSources:
    BOTH = (
        ("nvml", SamplesTaken((active(ONE.uuid, 0.1)._replace(good_for_ns=3 * 10**9),))),
        ("dcgm", SamplesTaken((active(PLACE.uuid, 0.9),))),
    )

    @pytest.mark.parametrize(
        ("sources", "value"), [(("nvml", "dcgm"), 0.1), (("dcgm", "nvml"), 0.9)]
    )
    def test_the_reading_of_the_earlier_source_is_shown(
        self, sources: tuple[str, ...], value: float
    ) -> None:
        for order in permutations([*EVENTS[:2], *self.BOTH]):
            node = node_after(*order, sources=sources)
            assert [found.value for found in shown(node)["readings"]] == [value]

    def test_the_reading_of_the_later_source_is_shown_if_the_earlier_has_none(self) -> None:
        node = node_after(*EVENTS[:2], *self.BOTH)
        node.snapshot()
        node.seconds = 4
        node.say(ClockTicked(), "", "clock")
        assert [found.value for found in shown(node)["readings"]] == [0.9]
        assert shown(node)["readings"][0].device == ONE.uuid

    def test_the_reading_of_the_other_source_is_shown_after_one_was_removed(self) -> None:
        for gone, left, value in (("nvml", PLACE.uuid, 0.9), ("dcgm", ONE.uuid, 0.1)):
            node = node_after(*EVENTS[:2], *self.BOTH)
            node.snapshot()
            node.say(SourceRemoved(), gone, gone)
            assert shown(node)["series"] == [("graphics_engine_active_ratio", (), left)]
            assert [found.value for found in shown(node)["readings"]] == [value]

    def test_a_source_with_two_names_for_one_device_has_one_reading(self) -> None:
        exact = f"MIG-{GPU.uuid}/7/0"
        for readings in permutations([active(PLACE.uuid, 0.1), active(exact, 0.2)]):
            node = node_after(*EVENTS[:2], ("dcgm", SamplesTaken(readings)))
            assert len(shown(node)["readings"]) == 1


def test_processes_of_a_placement_are_shown_for_the_device() -> None:
    listed = ProcessList(PLACE.uuid, (GpuProcess(7, "compute", 5),), START, 15 * 10**9)
    node = node_after(*EVENTS[:2], ("dcgm", SamplesTaken((), (listed,))))
    assert shown(node)["processes"] == {ONE.uuid: listed.processes}
    assert [series[2] for series in shown(node)["series"]] == [ONE.uuid]


class TestDescriptions:
    """Two sources describe the same GPU."""

    FULL = replace(GPU, facts=(("brand", "NVIDIA"), ("serial", "1")))
    POOR = Device(GPU.uuid, index=4, model="NVIDIA-H100", facts=(("serial", "2"), ("vbios", "9")))

    def test_the_later_description_fills_gaps_of_the_earlier_one(self) -> None:
        for order in permutations(
            [("nvml", DevicesDiscovered((self.FULL,))), ("dcgm", DevicesDiscovered((self.POOR,)))]
        ):
            [device] = shown(node_after(*order))["devices"]
            assert device == replace(
                self.FULL, facts=(("brand", "NVIDIA"), ("serial", "1"), ("vbios", "9"))
            )
            [device] = shown(node_after(*order, sources=("dcgm", "nvml")))["devices"]
            assert (device.index, device.minor, device.model) == (4, 0, "NVIDIA-H100")
            assert device.facts == (("brand", "NVIDIA"), ("serial", "2"), ("vbios", "9"))

    def test_descriptions_of_an_instance_are_merged(self) -> None:
        profiled = replace(PLACE, facts=(("serial", "1"),))
        bare = replace(ONE, mig=MigPlace(GPU.uuid, 7, 0, "", index=3))
        for order in permutations(
            [("nvml", DevicesDiscovered((bare,))), ("dcgm", DevicesDiscovered((profiled,)))]
        ):
            for sources in (("nvml", "dcgm"), ("dcgm", "nvml")):
                [device] = shown(node_after(*order, sources=sources))["devices"]
                assert device.uuid == ONE.uuid
                assert device.mig == MigPlace(GPU.uuid, 7, 0, "1g.10gb", index=3)
                assert device.facts == (("serial", "1"),)

    def test_the_same_descriptions_again_change_nothing(self) -> None:
        node = node_after(*EVENTS)
        before = node.snapshot().layout
        for _ in range(2):
            for source, event in EVENTS[:2]:
                node.say(event, source, source)
        assert node.snapshot().layout is before


INSTANCES = [(gi, ci) for gi in (1, 2) for ci in (0, 1)]


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_the_result_depends_only_on_the_last_reports(seed: int, order: int) -> None:
    """The reports before the last, and the order of sources, have no effect.

    Readings are emitted once more at the end: those of a placement end with the instance there.
    """
    rng = Random(seed)
    reports: dict[str, list[Event]] = {"nvml": [], "dcgm": [], "read": []}
    for _ in range(rng.randint(1, 3)):
        present = [pair for pair in INSTANCES if rng.random() < 0.5]
        reports["nvml"].append(DevicesDiscovered((GPU, *(mig(GPU, gi, ci) for gi, ci in present))))
        seen = [(gi, rng.choice([ci, None])) for gi, ci in INSTANCES if rng.random() < 0.5]
        reports["dcgm"].append(
            DevicesDiscovered((GPU, *(placed(GPU, gi, ci) for gi, ci in dict.fromkeys(seen))))
        )
        names = [placed(GPU, gi, ci).uuid for gi, ci in INSTANCES] + [placed(GPU, 1).uuid]
        reports["read"].append(SamplesTaken(tuple(active(name, 0.5) for name in names)))
    newest = {source: events[-1] for source, events in reports.items()}
    last = node_after(*newest.items(), sources=("nvml", "dcgm"))
    shuffled, long = Random(order), node_after(sources=("nvml", "dcgm"))
    while any(reports.values()):
        source = shuffled.choice([name for name, events in reports.items() if events])
        long.say(reports[source].pop(0), source, source)
        if shuffled.random() < 0.5:
            long.snapshot()
    long.say(newest["read"], "read", "read")
    found, expected = shown(long), shown(last)
    assert found["devices"] == expected["devices"]
    assert found["series"] == expected["series"]
    uuids = {device.uuid for device in found["devices"]}
    assert {name for _, _, name in found["series"]} <= uuids
    assert len(set(found["series"])) == len(found["series"])


NEW = replace(ONE, uuid="MIG-new")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(GPU, NEW)], id="immediately"),
        pytest.param([(GPU,), (GPU, NEW)], id="after no instance"),
        pytest.param([(GPU, mig(GPU, 9)), (GPU, NEW)], id="after another instance"),
    ],
)
def test_a_new_instance_does_not_get_the_readings_of_the_previous_one(
    steps: list[tuple[Device, ...]],
) -> None:
    """Ids of GPU instances are used again, and dcgm-exporter's page is a while behind."""
    node = node_after(*EVENTS)
    for devices in steps:
        node.say(DevicesDiscovered(devices), "nvml", "nvml")
        read = {found.device for found in node.snapshot().readings}
        assert read == {GPU.uuid}, "the reading of the placement is still shown"
    node.say(SamplesTaken((active(PLACE.uuid, 0.75),)), "dcgm", "dcgm")
    found = {r.device: r.value for r in node.snapshot().readings}
    assert found == {GPU.uuid: 0.25, NEW.uuid: 0.75}


def test_a_placement_keeps_its_readings_when_its_uuid_becomes_known() -> None:
    node = node_after(*EVENTS[1:3])
    node.say(DevicesDiscovered((GPU, ONE)), "nvml", "nvml")
    assert {r.device: r.value for r in node.snapshot().readings} == {GPU.uuid: 0.25, ONE.uuid: 0.5}


@pytest.mark.parametrize(
    ("lost", "profile"), [((), "4g.40gb"), (("dcgm",), "3g.40gb"), (("dcgm", "nvml"), "4g.40gb")]
)
def test_a_source_that_is_down_does_not_name_the_profile(
    lost: tuple[str, ...], profile: str
) -> None:
    """If both are up, or both are down, the earlier source names it."""
    node = node_after(sources=("dcgm", "nvml"))
    stale = placed(GPU, 1, 0, "4g.40gb")
    fresh = mig(GPU, 1, 0)
    assert fresh.mig is not None
    fresh = replace(fresh, mig=replace(fresh.mig, profile="3g.40gb"))
    node.say(DevicesDiscovered((GPU, stale)), "dcgm", "dcgm")
    node.say(DevicesDiscovered((GPU, fresh)), "nvml", "nvml")
    for source in lost:
        node.say(SourceLost("gone"), source, source)
    [found] = [device for device in shown(node)["devices"] if device.mig is not None]
    assert (found.uuid, found.mig.profile) == (fresh.uuid, profile)
