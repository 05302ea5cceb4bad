"""Recordings of several nodes become one: times, states, and identifiers of each kind."""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from pipeline.model import (
    NS,
    AdvertisedResource,
    ClaimsReplaced,
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    Device,
    DevicesDiscovered,
    DeviceUse,
    Envelope,
    Event,
    GpuProcess,
    Instant,
    PartialRef,
    Pod,
    PodDeleted,
    PodInfo,
    PodsReplaced,
    PodUpserted,
    ProcessesSampled,
    ProcessList,
    ProcessUse,
    RawDeviceId,
    ResourcesAdvertised,
    RunningContainer,
    SamplesTaken,
    SourceAdded,
    TopologyCard,
    TopologyPair,
    TopologyRead,
    XidReport,
    XidsReported,
)
from pipeline.model.topology_facts import Level
from pipeline.recording import Header, RecordingReader, RecordingWriter
from tests.demo.merge import LEAD_NS, merge, read_all
from tests.support.nodes import START, at, claims, kubelet_claim, reading

REAL: Final = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"
MIG: Final = "MIG-a5fa6120-f6fa-51b6-9820-a42112640629"
UID: Final = "67711498-0b76-435e-8929-2ec772bd35ac"
CONTAINER: Final = "ab" * 32
CLUSTER: Final = "0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"

Recorded = Sequence[tuple[float, str, str, Event]]


def uuid(index: int) -> str:
    """Return the uuid of a GPU of a merged recording."""
    return f"GPU-{index:08x}-5eed-4a5e-9c0d-10{index:010d}"


def gpu(index: int = 0, uuid: str = REAL) -> Device:
    return Device(
        uuid,
        index,
        index,
        f"00000000:{0x3B + index:02X}:00.0",
        "NVIDIA H200",
        "580",
        facts=(("serial", f"16540{index}"),),
    )


def watts(second: float, value: float = 100, device: str = REAL) -> SamplesTaken:
    return SamplesTaken((reading(device, "power_watts", value, when=at(second - 0.01)),))


def recording(path: Path, events: Recorded) -> Path:
    header = Header("0.1.0", "gpu-7", START)
    with RecordingWriter(path, header) as writer:
        for second, source, kind, event in events:
            writer.write(Envelope(source, kind, 1, at(second), event))
    return path


def gpus(*events: tuple[float, Event], device: Device | None = None) -> Recorded:
    """Return events of a source nvml with one GPU, and the further events."""
    first: list[tuple[float, Event]] = [
        (0.2, SourceAdded(0, ("devices",))),
        (0.4, DevicesDiscovered((device or gpu(),))),
        (0.5, watts(0.5)),
    ]
    return [(second, "gpus", "nvml", event) for second, event in (*first, *events)]


def merged(
    tmp_path: Path, *inputs: Recorded, seconds: float = 60
) -> tuple[Header, Sequence[Envelope]]:
    paths = [recording(tmp_path / f"{number}.gz", events) for number, events in enumerate(inputs)]
    output = tmp_path / "merged.gz"
    merge(read_all(paths), output, seconds)
    with RecordingReader(output) as reader:
        return reader.header, tuple(reader)


def of(envelopes: Sequence[Envelope], kind: type[Event]) -> list[Event]:
    return [one.event for one in envelopes if isinstance(one.event, kind)]


def test_gpus_get_consecutive_indexes_and_sample_identifiers(tmp_path: Path) -> None:
    """The same GPU in two recordings is two GPUs."""
    _, found = merged(tmp_path, gpus(), gpus())
    (discovered,) = of(found, DevicesDiscovered)
    assert isinstance(discovered, DevicesDiscovered)
    assert [(one.index, one.minor, one.uuid) for one in discovered.devices] == [
        (0, 0, uuid(0)),
        (1, 1, uuid(1)),
    ]
    buses = [one.pci_bus_id for one in discovered.devices]
    assert buses == ["00000000:18:00.0", "00000000:20:00.0"]
    serials = [dict(one.facts)["serial"] for one in discovered.devices]
    assert serials == ["1650000000000", "1650000000001"]


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


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (RawDeviceId("uuid", REAL), f"{uuid(1)}"),
        (RawDeviceId("plugin", f"{REAL}::3"), f"{uuid(1)}::3"),
        (RawDeviceId("minor", "0"), "1"),
        (RawDeviceId("index", "0:2"), "1:2"),
        (RawDeviceId("visible", "0"), "1"),
        (RawDeviceId("visible", REAL), uuid(1)),
        (RawDeviceId("cdi", "nvidia.com/gpu=0"), "nvidia.com/gpu=1"),
        (RawDeviceId("cdi", f"nvidia.com/gpu={REAL}"), f"nvidia.com/gpu={uuid(1)}"),
        (RawDeviceId("dra", "gpu.nvidia.com/gpu-7/gpu-0"), "gpu.nvidia.com/demo/gpu-0"),
        (RawDeviceId("uuid", MIG), "MIG-00000001-5eed-4a5e-9c0d-000000000007"),
    ],
    ids=str,
)
def test_each_form_of_a_device_id_means_the_same_device(
    tmp_path: Path, device: RawDeviceId, expected: str
) -> None:
    claim = replace(kubelet_claim("train-0"), devices=(device,))
    last = (9.0, watts(9))
    second: Recorded = [*gpus(last), (1, "kubelet", "podresources", claims(claim))]
    _, found = merged(tmp_path, gpus(last), second)
    (event,) = of(found, ClaimsReplaced)
    assert isinstance(event, ClaimsReplaced)
    assert [one.text for one in event.claims[0].devices] == [expected]


def test_nothing_of_the_recorded_machine_is_left(tmp_path: Path) -> None:
    owner = PartialRef(uid=UID, container_id=CONTAINER)
    using = ProcessUse(4321, 7, owner, "compute", 1, None)
    use = DeviceUse(REAL, at(1), None, (using,), 1 << 30, 0, None, None, 6 * NS)
    process = SamplesTaken(
        (
            reading(REAL, "process_memory_used_bytes", 5, attrs=(("pid", "4321"),), when=at(1)),
            reading(REAL, "nvlink_errors", 5, attrs=(("peer_gpu", "0"),), when=at(1)),
        ),
        (ProcessList(REAL, (GpuProcess(4321, "compute", 5),), at(1), NS),),
    )
    started = RunningContainer(
        PartialRef("ml", "a", "main", UID, CONTAINER),
        4321,
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/{CONTAINER}.scope",
        at(-60),
    )
    events: list[tuple[float, str, str, Event]] = [
        *gpus((1, process), (1, ProcessesSampled((use,)))),
        (1, "runtime", "nri", ContainersReplaced((started,), NS)),
        (1, "kernel", "kernel", XidsReported((XidReport("", "0000:3b:00.0", 31, at(1), 4321),))),
        (9, "gpus", "nvml", watts(9)),
    ]
    _, found = merged(tmp_path, events)
    text = gzip.decompress((tmp_path / "merged.gz").read_bytes()).decode()
    for old in (
        REAL[4:],
        UID,
        UID.replace("-", "_"),
        CONTAINER,
        "4321",
        "3b:00",
        "3B:00",
        "gpu-7",
        "165400",
    ):
        assert old not in text, old
    (replaced,) = of(found, ContainersReplaced)
    assert isinstance(replaced, ContainersReplaced)
    (running,) = replaced.containers
    (sampled,) = of(found, ProcessesSampled)
    assert isinstance(sampled, ProcessesSampled)
    ((known,),) = (one.processes for one in sampled.uses)
    # It is still the same process, container and pod.
    assert known.pid == running.pid
    assert known.owner is not None
    assert known.owner.container_id == running.subject.container_id
    assert known.owner.uid == running.subject.uid
    assert known.owner.uid.replace("-", "_") in running.cgroup
    assert known.owner.container_id in running.cgroup
    (xids,) = of(found, XidsReported)
    assert isinstance(xids, XidsReported)
    assert xids.reports[0].pid == running.pid
    assert xids.reports[0].pci_bus_id == "0000:18:00.0"


def test_values_keep_four_digits_and_whole_numbers_all(tmp_path: Path) -> None:
    samples = (watts(1, 123.456789), watts(2, 123456789))
    events = gpus(*((second, event) for second, event in enumerate(samples, 1)))
    _, found = merged(tmp_path, events)
    values = [
        one.value
        for event in of(found, SamplesTaken)
        if isinstance(event, SamplesTaken)
        for one in event.readings
    ]
    assert values == [100, 123.5, 123456789]


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
