"""Recordings of several nodes become one: times and states of each kind."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.model import (
    NS,
    AdvertisedResource,
    ClaimsReplaced,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    DevicesDiscovered,
    Event,
    Instant,
    PartialRef,
    Pod,
    PodDeleted,
    PodInfo,
    PodsReplaced,
    PodUpserted,
    RawDeviceId,
    ResourcesAdvertised,
    RunningContainer,
    SamplesTaken,
    SourceAdded,
    TopologyCard,
    TopologyPair,
    TopologyRead,
)
from pipeline.model.topology_facts import Level
from tests.demo.inputs import (
    CLUSTER,
    REAL,
    UID,
    Recorded,
    gpu,
    gpus,
    merged,
    of,
    recording,
    uuid,
    watts,
)
from tests.demo.merge import LEAD_NS, merge, read_all
from tests.support.nodes import START, at, claims, kubelet_claim, reading


def test_all_recordings_begin_at_once_and_end_with_the_shortest(tmp_path: Path) -> None:
    one = gpus(*((second, watts(second)) for second in range(1, 30)))
    other: Recorded = [
        (3, "gpus", "nvml", SourceAdded(0)),
        (3.4, "gpus", "nvml", DevicesDiscovered((gpu(),))),
        *((3.5 + second, "gpus", "nvml", watts(3.5 + second)) for second in range(10)),
    ]
    header, found = merged(tmp_path, one, other)
    assert header.node == "demo"
    started = header.started
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert found[0].at == started
    (sampled, *_) = of(found, SamplesTaken)
    assert isinstance(sampled, SamplesTaken)
    assert sampled.readings[0].at.mono_ns == started.mono_ns + LEAD_NS
    times: dict[str, list[int]] = {uuid(0): [], uuid(1): []}
    for envelope in found:
        if isinstance(envelope.event, SamplesTaken):
            for sample in envelope.event.readings:
                times[sample.device].append(sample.at.mono_ns - started.mono_ns)
    assert times[uuid(0)][0] == times[uuid(1)][0]
    assert len(times[uuid(1)]) == 10
    assert max(times[uuid(0)]) <= max(times[uuid(1)])


def test_the_recording_is_not_longer_than_asked(tmp_path: Path) -> None:
    events = gpus(*((second, watts(second)) for second in range(1, 30)))
    header, found = merged(tmp_path, events, seconds=5)
    assert 4 <= header.started.seconds_until(found[-1].at) <= 5


def test_states_are_joined_and_complete_from_the_beginning(tmp_path: Path) -> None:
    def kubelet(pod: str, second: float, *more: tuple[float, Event]) -> Recorded:
        first = (second, claims(kubelet_claim(pod, REAL)))
        return [(when, "kubelet", "podresources", event) for when, event in (first, *more)]

    later = (5.0, claims(kubelet_claim("other", REAL)))
    one = [*gpus((9, watts(9))), *kubelet("train-0", 1)]
    two = [*gpus((9, watts(9))), *kubelet("eval-0", 4, later)]
    _, found = merged(tmp_path, one, two)
    pods = [
        [(one.subject.pod, one.devices[0].text) for one in event.claims]
        for event in of(found, ClaimsReplaced)
        if isinstance(event, ClaimsReplaced)
    ]
    assert pods == [
        [("train-0", uuid(0)), ("eval-0", uuid(1))],
        [("train-0", uuid(0)), ("other", uuid(1))],
    ]
    kinds = [type(one.event) for one in found]
    assert kinds.index(ClaimsReplaced) < kinds.index(SamplesTaken)
    added = [one for one in found if isinstance(one.event, SourceAdded)]
    assert [one.source for one in added] == ["gpus"]


def pod(name: str) -> Pod:
    return Pod(PodInfo(f"{hash(name) & 0xFFFFFFFF:08x}{UID[8:]}", "ml", name))


def container(name: str, key: str) -> RunningContainer:
    return RunningContainer(PartialRef("ml", name, "main", UID, key), 4321)


def test_changes_of_pods_and_containers_stay_in_later_states(tmp_path: Path) -> None:
    a, b = "aa" * 32, "bb" * 32
    of_pods: Recorded = [
        (1, "pods", "pods", PodsReplaced((pod("a"),), NS)),
        (2, "pods", "pods", PodUpserted(pod("b"))),
        (3, "pods", "pods", PodDeleted(pod("a").info.uid)),
        (1, "runtime", "nri", ContainersReplaced((container("a", a),), NS)),
        (2, "runtime", "nri", ContainerStarted(container("b", b))),
        (3, "runtime", "nri", ContainerStopped(a)),
    ]
    other: Recorded = [
        (1, "pods", "pods", PodsReplaced((pod("x"),), NS)),
        (4, "pods", "pods", PodsReplaced((pod("y"),), NS)),
        (1, "runtime", "nri", ContainersReplaced((), NS)),
        (4, "runtime", "nri", ContainersReplaced((), NS)),
    ]
    last = (9, watts(9))
    _, found = merged(tmp_path, [*gpus(last), *of_pods], [*gpus(last), *other])
    names = [
        [one.info.name for one in event.pods]
        for event in of(found, PodsReplaced)
        if isinstance(event, PodsReplaced)
    ]
    assert names == [["a", "x"], ["b", "y"]]
    containers = [
        [one.subject.pod for one in event.containers]
        for event in of(found, ContainersReplaced)
        if isinstance(event, ContainersReplaced)
    ]
    assert containers == [["a"], ["b"]]


def test_advertised_resources_are_added_up(tmp_path: Path) -> None:
    def advertised(name: str) -> ResourcesAdvertised:
        resource = AdvertisedResource(name, (RawDeviceId("plugin", REAL),))
        return ResourcesAdvertised((resource,), 5 * NS)

    def recorded(name: str) -> Recorded:
        return [*gpus((9, watts(9))), (1, "kubelet", "podresources", advertised(name))]

    _, found = merged(tmp_path, recorded("a"), recorded("a"), recorded("b"))
    assert of(found, ResourcesAdvertised) == [
        ResourcesAdvertised(
            (
                AdvertisedResource(
                    "a", (RawDeviceId("plugin", uuid(0)), RawDeviceId("plugin", uuid(1)))
                ),
                AdvertisedResource("b", (RawDeviceId("plugin", uuid(2)),)),
            ),
            5 * NS,
        )
    ]


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(141, (Level.NODE, 18, True)), (80, (Level.SYSTEM, 0, False))],
    ids=["of one size", "of two sizes"],
)
def test_gpus_of_two_recordings_are_connected(
    tmp_path: Path, memory: int, expected: tuple[Level, int, bool]
) -> None:
    def topology(size: int) -> tuple[float, Event]:
        bridges = ("0000:00:01.0",)
        card = TopologyCard(
            REAL, 0, gpu().pci_bus_id, 0, bridges, 18, CLUSTER, 3, memory_bytes=size
        )
        return 0.6, TopologyRead((card,), ())

    _, found = merged(tmp_path, gpus(topology(141)), gpus(topology(memory)))
    (joined,) = of(found, TopologyRead)
    assert isinstance(joined, TopologyRead)
    assert joined.pairs == (TopologyPair(uuid(0), uuid(1), *expected),)
    assert [card.index for card in joined.cards] == [0, 1]
    assert all(card.cluster not in ("", CLUSTER) and not card.pcie_path for card in joined.cards)


def test_gauges_keep_four_digits_and_other_numbers_all(tmp_path: Path) -> None:
    counter = SamplesTaken((reading(REAL, "energy_millijoules", 123456.789, when=at(2.99)),))
    samples = (watts(1, 123.456789), watts(2, 123456789), counter)
    events = gpus(*((second, event) for second, event in enumerate(samples, 1)))
    _, found = merged(tmp_path, events)
    values = [
        one.value
        for event in of(found, SamplesTaken)
        if isinstance(event, SamplesTaken)
        for one in event.readings
    ]
    assert values == [100, 123.5, 123456789, 123456.789]


def test_a_reading_that_is_a_time_is_moved_and_not_rounded(tmp_path: Path) -> None:
    seen = START.wall_ns / NS + 3
    last = SamplesTaken(
        (
            reading(
                REAL, "xid_last_seen_timestamp_seconds", seen, when=at(4), attrs=(("xid", "31"),)
            ),
        )
    )
    header, found = merged(tmp_path, gpus((4, last), (9, watts(9))))
    (value,) = (
        one.value
        for event in of(found, SamplesTaken)
        if isinstance(event, SamplesTaken)
        for one in event.readings
        if one.field != "power_watts"
    )
    # It was 2.51 s after the first reading.
    expected = header.started.wall_ns / NS + LEAD_NS / NS + 2.51
    assert value == pytest.approx(expected, abs=0.002)


def test_a_merge_gives_the_same_file_each_time(tmp_path: Path) -> None:
    path = recording(tmp_path / "one.gz", gpus((3, watts(3))))
    for name in ("a", "b"):
        merge(read_all([path, path]), tmp_path / name, 60)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_recording_without_gpus_is_refused(tmp_path: Path) -> None:
    path = recording(tmp_path / "one.gz", [(1, "gpus", "nvml", SourceAdded(0))])
    with pytest.raises(ValueError, match=r"one\.gz has no GPUs with readings"):
        read_all([path])


def test_times_before_the_recording_keep_their_distance(tmp_path: Path) -> None:
    old = replace(kubelet_claim("train-0", REAL), since=at(-3600))
    events: Recorded = [*gpus((9, watts(9))), (1, "kubelet", "podresources", claims(old))]
    header, found = merged(tmp_path, events)
    (event,) = of(found, ClaimsReplaced)
    assert isinstance(event, ClaimsReplaced)
    since = event.claims[0].since
    assert since is not None
    assert header.started == Instant(START.mono_ns, START.wall_ns)
    assert header.started.seconds_until(since) == pytest.approx(-3600, abs=1)
    assert since.wall_ns - header.started.wall_ns == since.mono_ns - header.started.mono_ns
